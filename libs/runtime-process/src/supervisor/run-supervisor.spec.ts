import { describe, expect, it } from '@jest/globals';
import { parseArguments, toSupervisorArguments } from './run-supervisor.js';

describe('parseArguments', () => {
  it('reads the arguments that toSupervisorArguments creates, also after other arguments', () => {
    expect(parseArguments(['--flag', ...toSupervisorArguments('/srv/run', 2_000.7)])).toEqual({
      directory: '/srv/run',
      idleMs: 2_000,
    });
  });

  it.each([[[]], [['/srv/run']], [['run', '5']], [['/srv/run', '-1']], [['/srv/run', '5 s']]])(
    'rejects the arguments %j',
    (args) => {
      expect(() => parseArguments(args)).toThrow(expect.objectContaining({ kind: 'invalid' }));
    },
  );
});
