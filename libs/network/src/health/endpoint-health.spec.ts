import fc from 'fast-check';
import {
  UNCHECKED_HEALTH,
  isReportable,
  nextHealth,
  type CheckedHealth,
} from './endpoint-health.js';

const thresholds = { healthy: 2, unhealthy: 3 };
const after = (results: string, start: CheckedHealth = UNCHECKED_HEALTH): CheckedHealth =>
  [...results].reduce(
    (health, result) =>
      nextHealth(
        health,
        result === '+' ? { kind: 'succeeded' } : { kind: 'failed', reason: `refused (${result})` },
        thresholds,
      ),
    start,
  );

describe('nextHealth', () => {
  it.each([
    ['', 'unknown'],
    ['+', 'healthy'],
    ['-', 'unknown'],
    ['-+', 'unknown'],
    ['-++', 'healthy'],
    ['--', 'unknown'],
    ['---', 'unhealthy'],
    ['+--', 'healthy'],
    ['+--+--', 'healthy'],
    ['+---', 'unhealthy'],
    ['+---+', 'unhealthy'],
    ['+---++', 'healthy'],
  ])('checks %s make an endpoint %s', (results, status) => {
    expect(after(results).status).toBe(status);
  });

  it('changes a known health only after a threshold of equal results in a row', () => {
    fc.assert(
      fc.property(fc.array(fc.constantFrom('+', '-'), { maxLength: 30 }), (results) => {
        const text = results.join('');
        const health = after(text);
        if (health.status === 'healthy') expect(text.endsWith('---')).toBe(false);
        if (health.status === 'unhealthy') expect(text.endsWith('++')).toBe(false);
        expect(health.consecutiveSuccesses === 0 || health.consecutiveFailures === 0).toBe(true);
      }),
    );
  });
});

describe('isReportable', () => {
  it.each([
    ['+', '++', false],
    ['+', '+--', false],
    ['+--', '+---', true],
    ['+---', '+----', false],
    ['+---', '+---x', true],
    ['+---', '+---+', false],
    ['+---+', '+---+-', false],
    ['+---+', '+---++', true],
  ])('after %s, then %s: %s', (before, then, expected) => {
    expect(isReportable(after(before), after(then))).toBe(expected);
  });
});
