import { describeExpectedEnum, findEnumName } from './enum-words.js';

const NAMES = ['ALWAYS', 'ON_FAILURE', 'NEVER'];

describe('findEnumName', () => {
  it.each(['ON_FAILURE', 'on_failure', 'OnFailure', 'onFailure', 'on-failure', 'onfailure'])(
    'accepts the spelling %s',
    (text) => {
      expect(findEnumName(text, NAMES)).toBe('ON_FAILURE');
    },
  );

  it('refuses another word, with the words of the tables in the message', () => {
    expect(findEnumName('sometimes', NAMES)).toBeUndefined();
    expect(describeExpectedEnum('alwys', NAMES)).toBe(
      'expected one of Always, OnFailure, Never, got "alwys"; did you mean Always?',
    );
  });
});
