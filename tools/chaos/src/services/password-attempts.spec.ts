import { judgeAttempts, parseAttempts } from './password-attempts.js';

const REFUSAL = 'FATAL: password authentication failed for user "app"';

describe('parseAttempts', () => {
  it('reads answers and errors, and leaves out a line that is not complete', () => {
    expect(parseAttempts('10 v1 answered \n20 v1 FATAL:  refused \n30 v2 ans')).toEqual([
      { atMs: 10, version: 'v1', error: undefined },
      { atMs: 20, version: 'v1', error: 'FATAL:  refused' },
    ]);
  });
});

describe('judgeAttempts', () => {
  it.each([
    { name: 'none fails', lines: ['10 v1 answered'], refused: 0, failed: 0, failingMs: 0 },
    {
      name: 'the server refuses a password once',
      lines: ['10 v1 answered', `20 v1 ${REFUSAL}`, '30 v2 answered'],
      ...{ refused: 1, failed: 0, failingMs: 0 },
    },
    {
      name: 'the server restarts',
      lines: [`20 v1 ${REFUSAL}`, '50 v2 connection refused', '25 v2 answered'],
      ...{ refused: 1, failed: 1, failingMs: 30 },
    },
  ])('counts attempts by their end when $name', ({ lines, refused, failed, failingMs }) => {
    const attempts = parseAttempts(`${lines.join('\n')}\n`);
    const counts = { attempts: lines.length, refused, failed, failingMs };
    expect(judgeAttempts(attempts, /connection refused/)).toEqual(counts);
  });

  it.each(['10 v1 connection refused\n', '10 v1\n'])('rejects the error of "%s"', (text) => {
    expect(() => judgeAttempts(parseAttempts(text))).toThrow('an attempt failed');
  });
});
