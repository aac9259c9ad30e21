import { describe, expect, it } from '@jest/globals';
import { errorCodeOf } from './error-code.js';

describe('errorCodeOf', () => {
  it('returns the code of an error of the operating system', () => {
    expect(errorCodeOf(Object.assign(new Error('no such file'), { code: 'ENOENT' }))).toBe(
      'ENOENT',
    );
  });

  it.each([undefined, null, 'ENOENT', new Error('ENOENT'), { code: 5 }])(
    'returns undefined for %p',
    (reason) => {
      expect(errorCodeOf(reason)).toBeUndefined();
    },
  );
});
