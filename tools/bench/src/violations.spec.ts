import { Violations } from './violations.js';

describe('Violations', () => {
  it('writes a line for each violation and returns exit code 1', () => {
    const told: string[] = [];
    const violations = new Violations();
    violations.check(true, 'what holds');
    violations.check(3 > 4, '3 nodes were lost that were well');
    violations.checkZero(2, 'replicas started twice');
    violations.checkZero(0, 'replicas lost');
    expect(violations.exitCode((text) => void told.push(text))).toBe(1);
    expect(told).toEqual([
      'VIOLATION: 3 nodes were lost that were well',
      'VIOLATION: replicas started twice: 2, must be 0',
    ]);
    expect(violations.texts).toEqual([
      '3 nodes were lost that were well',
      'replicas started twice: 2, must be 0',
    ]);
  });

  it('writes nothing and returns exit code 0 without a violation', () => {
    const told: string[] = [];
    const violations = new Violations();
    violations.check(true, 'what holds');
    expect(violations.exitCode((text) => void told.push(text))).toBe(0);
    expect(told).toEqual([]);
  });

  it.each([Number.NaN, -1, 1])('counts %s as a violation where 0 is expected', (count) => {
    const violations = new Violations();
    violations.checkZero(count, 'losses');
    expect(violations.exitCode(() => undefined)).toBe(1);
  });
});

describe('Violations.flat', () => {
  it.each([
    { name: 'the same', first: 100, second: 100, violations: 0 },
    { name: 'a little more', first: 100, second: 115, violations: 0 },
    { name: 'a third more and a margin', first: 100, second: 160, violations: 1 },
    { name: 'less', first: 100, second: 50, violations: 0 },
    { name: 'not known', first: undefined, second: undefined, violations: 1 },
  ])('$name: $violations violations', ({ first, second, violations }) => {
    const seen = new Violations();
    seen.checkFlat('open files of the agent', { first, second }, { share: 0.25, margin: 20 });
    expect(seen.texts).toHaveLength(violations);
  });
});
