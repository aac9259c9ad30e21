import fc from 'fast-check';
import {
  createProbeState,
  reduceProbe,
  formatProbeReason,
  type CheckResult,
  type ProbeState,
  type ProbeVerdict,
} from './probe-state.js';

const passed: CheckResult = { kind: 'passed' };
const failed: CheckResult = { kind: 'failed', reason: 'HTTP 503 from /healthz' };
const unknown: CheckResult = { kind: 'unknown', reason: 'the runtime was away' };
/** Converts text to results: `+` passed, `-` failed, `?` unknown. */
const resultsOf = (text: string): CheckResult[] =>
  [...text].map((sign) => (sign === '+' ? passed : sign === '-' ? failed : unknown));
const stateAfter = (
  results: readonly CheckResult[],
  successThreshold: number,
  failureThreshold: number,
  from: ProbeVerdict,
): ProbeState =>
  results.reduce(
    (state, result) => reduceProbe(state, result, { successThreshold, failureThreshold }),
    createProbeState(from),
  );

describe('reduceProbe', () => {
  const defaults = { success: 1, failure: 3, from: 'undecided' } as const;
  it.each<{
    results: string;
    success: number;
    failure: number;
    from: ProbeVerdict;
    verdict: ProbeVerdict;
  }>([
    { ...defaults, results: '', verdict: 'undecided' },
    { ...defaults, results: '+', verdict: 'passing' },
    { ...defaults, results: '--', verdict: 'undecided' },
    { ...defaults, results: '---', verdict: 'failing' },
    { ...defaults, results: '--+', verdict: 'passing' },
    { ...defaults, results: '--?-', verdict: 'failing' },
    { ...defaults, results: '???', verdict: 'undecided' },
    { ...defaults, results: '+--', verdict: 'passing' },
    { ...defaults, results: '+--+--', verdict: 'passing' },
    { ...defaults, results: '+---', verdict: 'failing' },
    { ...defaults, results: '---+', verdict: 'passing' },
    { ...defaults, results: '---+', success: 2, verdict: 'failing' },
    { ...defaults, results: '---++', success: 2, verdict: 'passing' },
    { ...defaults, results: '---+-+', success: 2, verdict: 'failing' },
    { ...defaults, results: '-', failure: 1, verdict: 'failing' },
    { ...defaults, results: '--', from: 'passing', verdict: 'passing' },
    { ...defaults, results: '---', from: 'passing', verdict: 'failing' },
  ])(
    'returns $verdict after the results "$results" from $from, with thresholds $success and $failure',
    ({ results, verdict, success, failure, from }) => {
      expect(stateAfter(resultsOf(results), success, failure, from).verdict).toBe(verdict);
    },
  );

  it('returns, for random results, the verdict of the last run of equal results that reached its threshold', () => {
    const arbitraryResults = fc.record({
      signs: fc.array(fc.constantFrom('+', '-', '?'), { maxLength: 30 }),
      success: fc.integer({ min: 1, max: 4 }),
      failure: fc.integer({ min: 1, max: 4 }),
    });
    fc.assert(
      fc.property(arbitraryResults, ({ signs, success, failure }) => {
        const known = signs.filter((sign) => sign !== '?').join('');
        const runs = [...known.matchAll(new RegExp(`\\+{${success},}|-{${failure},}`, 'g'))].at(
          -1,
        )?.[0][0];
        const expected = runs === undefined ? 'undecided' : runs === '+' ? 'passing' : 'failing';
        const state = stateAfter(resultsOf(signs.join('')), success, failure, 'undecided');
        expect(state.verdict).toBe(expected);
        expect(state.passes * state.failures).toBe(0);
        expect(state.passes <= success && state.failures <= failure).toBe(true);
      }),
    );
  });
});

describe('formatProbeReason', () => {
  const thresholds = { successThreshold: 2, failureThreshold: 3 };
  it.each([
    { results: '', text: 'waiting for the readiness probe' },
    { results: '-', text: 'readiness probe: HTTP 503 from /healthz' },
    { results: '--', text: 'readiness probe: HTTP 503 from /healthz' },
    { results: '---', text: 'readiness probe: HTTP 503 from /healthz, 3 of 3 failed' },
    { results: '-------', text: 'readiness probe: HTTP 503 from /healthz, 3 of 3 failed' },
    { results: '---+', text: 'readiness probe: 1 of 2 passed' },
  ])('formats "$results" as $text', ({ results, text }) => {
    expect(
      formatProbeReason('readiness', stateAfter(resultsOf(results), 2, 3, 'undecided'), thresholds),
    ).toBe(text);
  });

  it('includes the detail of the last failure unless withDetail is false', () => {
    const result: CheckResult = {
      kind: 'failed',
      reason: 'the command ended with exit code 1',
      detail: 'no file',
    };
    const state = reduceProbe(createProbeState('undecided'), result, thresholds);
    expect(formatProbeReason('liveness', state, thresholds)).toBe(
      'liveness probe: the command ended with exit code 1 (no file)',
    );
    expect(formatProbeReason('liveness', state, thresholds, { withDetail: false })).toBe(
      'liveness probe: the command ended with exit code 1',
    );
  });
});
