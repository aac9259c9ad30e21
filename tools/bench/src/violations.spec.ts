import { Violations } from './violations.js';

describe('Violations', () => {
  it('writes a line for each violation and returns exit code 1', () => {
    const lines: string[] = [];
    const violations = new Violations();
    violations.check(true, 'a condition that holds');
    violations.check(3 > 4, '3 nodes were lost that were well');
    violations.checkZero(2, 'replicas started twice');
    violations.checkZero(0, 'replicas lost');
    expect(violations.exitCode((text) => void lines.push(text))).toBe(1);
    expect(lines).toEqual([
      'VIOLATION: 3 nodes were lost that were well',
      'VIOLATION: replicas started twice: 2, must be 0',
    ]);
    expect(violations.texts).toEqual([
      '3 nodes were lost that were well',
      'replicas started twice: 2, must be 0',
    ]);
  });

  it('writes failed checks of the pace by another name, and returns exit code 1', () => {
    const lines: string[] = [];
    const violations = new Violations();
    violations.checkPace(true, 'fast enough');
    violations.checkPace(3 > 4, 'only 3 renewals');
    expect(violations.exitCode((text) => void lines.push(text))).toBe(1);
    expect(lines).toEqual(['TOO SLOW: only 3 renewals']);
    expect(violations.texts).toEqual(['only 3 renewals']);
  });

  it('writes nothing and returns exit code 0 without a violation', () => {
    const lines: string[] = [];
    const violations = new Violations();
    violations.check(true, 'a condition that holds');
    expect(violations.exitCode((text) => void lines.push(text))).toBe(0);
    expect(lines).toEqual([]);
  });

  it.each([Number.NaN, -1, 1])('checkZero counts %s as a violation', (count) => {
    const violations = new Violations();
    violations.checkZero(count, 'losses');
    expect(violations.exitCode(() => undefined)).toBe(1);
  });
});

describe('Violations.checkFlat', () => {
  it.each([
    { name: 'equal to the first', first: 100, second: 100, violations: 0 },
    {
      name: 'higher by less than the share and the margin',
      first: 100,
      second: 115,
      violations: 0,
    },
    {
      name: 'higher by more than the share and the margin',
      first: 100,
      second: 160,
      violations: 1,
    },
    { name: 'lower', first: 100, second: 50, violations: 0 },
    { name: 'unknown', first: undefined, second: undefined, violations: 1 },
  ])(
    'reports $violations violations when the second half is $name',
    ({ first, second, violations }) => {
      const recorder = new Violations();
      recorder.checkFlat('open files of the agent', { first, second }, { share: 0.25, margin: 20 });
      expect(recorder.texts).toHaveLength(violations);
    },
  );
});
