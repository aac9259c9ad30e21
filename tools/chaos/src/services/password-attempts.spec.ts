import { judgeAttempts, parseAttempts } from './password-attempts.js';

const REFUSED = /password authentication failed/;

describe('parseAttempts', () => {
  it('reads answers and errors, and leaves out a line that is not complete', () => {
    expect(parseAttempts('v1 answered \nv1 FATAL:  refused \nv2 ans')).toEqual([
      { version: 'v1', error: undefined },
      { version: 'v1', error: 'FATAL:  refused' },
    ]);
  });
});

describe('judgeAttempts', () => {
  it('counts failed attempts when their errors are allowed', () => {
    const attempts = parseAttempts('v1 answered\nv2 FATAL: password authentication failed\n');
    expect(judgeAttempts(attempts, REFUSED)).toEqual({ failed: 1 });
  });

  it.each(['v1 connection refused\n', 'v1\n'])('rejects the error of "%s"', (text) => {
    expect(() => judgeAttempts(parseAttempts(text), REFUSED)).toThrow('an attempt failed');
  });
});
