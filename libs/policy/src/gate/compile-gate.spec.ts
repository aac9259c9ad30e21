import fc from 'fast-check';
import { compileGate } from './compile-gate.js';
import { GATE_FIGURES } from './gate-figures.js';

function evaluate(source: string, values: Readonly<Record<string, number | undefined>>) {
  return compileGate(source).evaluate((name) => values[name]);
}

it.each([
  ['errors_per_s < 1 && p99_ms < 200', { errors_per_s: 0, p99_ms: 150 }, 'passed'],
  ['errors_per_s < 1 && p99_ms < 200', { errors_per_s: 1, p99_ms: 150 }, 'failed'],
  ['p99_ms < 1.2 * stable.p99_ms', { p99_ms: 110, 'stable.p99_ms': 100 }, 'passed'],
  ['p99_ms < 2 * stable.p99_ms + 5', { p99_ms: 206, 'stable.p99_ms': 100 }, 'failed'],
  ['restarts == 0 ? cpu_millis < 500 : false', { restarts: 0, cpu_millis: 100 }, 'passed'],
  ['!(errors_per_s / requests_per_s > 0.1)', { errors_per_s: 1, requests_per_s: 5 }, 'failed'],
  ['-p99_ms < -1', { p99_ms: 3 }, 'passed'],
])('%s with %j: %s', (source, values, kind) => {
  expect(evaluate(source, values)).toEqual({ kind });
});

describe('a gate has no result', () => {
  it.each([
    ['without one of its figures', 'p99_ms < 200', {}, 'no data: p99_ms'],
    [
      'without a figure that the result does not depend on',
      'restarts == 0 || p99_ms < 2 * stable.p99_ms',
      { restarts: 0, p99_ms: 1 },
      'no data: stable.p99_ms',
    ],
    ['with a figure that is no number', 'p99_ms < 200', { p99_ms: NaN }, 'no data: p99_ms'],
    [
      'for a division by 0',
      '!(errors_per_s / requests_per_s > 0.1)',
      { errors_per_s: 0, requests_per_s: 0 },
      'division by 0',
    ],
  ])('%s', (_title, source, values, reason) => {
    expect(evaluate(source, values)).toMatchObject({
      kind: 'noData',
      reason: expect.stringContaining(reason),
    });
  });
});

describe('a gate is refused', () => {
  it.each([
    ['with an unknown figure', 'p95_ms < 1', /^p95_ms is not a variable; use requests_per_s, /],
    ['with an unknown figure of the old version', 'stable.p95_ms < 1', /^stable\.p95_ms is not a/],
    ['with another object', 'other.p99_ms < 1', 'only stable has figures'],
    ['when its result is a number', 'p99_ms + 1', 'the result is a number'],
    ['when its result depends on no figure', '1 < 2', 'the gate uses no figure'],
    ['with a number as a condition', 'p99_ms && true', '&&: a boolean is needed, not a number'],
    ['with a boolean in a sum', '(p99_ms < 1) + 1 < 2', '+: a number is needed, not a boolean'],
    ['with unequal branches', 'p99_ms < 1 ? 1 : true', 'a boolean is needed, not a number'],
    ['with a text', 'p99_ms == "1"', 'a gate has no texts'],
    ['with a list', 'p99_ms in [1.0]', /is not an allowed function|has no lists/],
    ['with a loop', '[1].all(x, p99_ms < 1)', 'a gate has no lists, maps and loops'],
    ['with a function', 'size("a") < p99_ms', 'is not an allowed function'],
    ['with has', 'has(stable.p99_ms) && p99_ms < 1', 'has(…) is not allowed'],
    ['that is empty', '', /./],
    ['that is no CEL', 'p99_ms <', /./],
    ['with deep brackets', `${'('.repeat(40)}p99_ms < 1${')'.repeat(40)}`, 'nested'],
    ['that is deep', `${'p99_ms + '.repeat(150)}p99_ms < 1`, 'levels deep'],
    ['that is long', `p99_ms < 1 ${'  '.repeat(2_100)}`, 'at most 4096'],
  ])('%s', (_title, source, message) => {
    expect(() => compileGate(source)).toThrow(message);
  });
});

it('any gate is either refused, or passes only with all of its figures', () => {
  const part = fc.constantFrom(
    ...GATE_FIGURES,
    ...['stable.p99_ms', '1', '0.5', 'true', '(', ')', ' && ', ' || ', '!', '-', ' ? ', ' : '],
    ...[' < ', ' >= ', ' == ', ' + ', ' / ', ' * '],
  );
  fc.assert(
    fc.property(fc.array(part, { maxLength: 9 }), fc.double({ noNaN: false }), (parts, value) => {
      let gate;
      try {
        gate = compileGate(parts.join(''));
      } catch (error) {
        expect(error).toBeInstanceOf(Error);
        return;
      }
      const [missing] = gate.figures;
      expect(gate.evaluate((name) => (name === missing ? undefined : value)).kind).toBe('noData');
      expect(gate.evaluate(() => 1).kind).toMatch(/^(passed|failed|noData)$/);
    }),
    { numRuns: 300 },
  );
});
