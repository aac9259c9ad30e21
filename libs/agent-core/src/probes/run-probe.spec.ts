import fc from 'fast-check';
import { StoppedError } from '@cloudless/base';
import { ManualClock, settle } from '@cloudless/base/testing';
import type { CheckResult } from './probe-state.js';
import { computeNextDue, runProbe, type RunCheck } from './run-probe.js';

/** Runs a probe on virtual time and records its checks and results. */
function aProbe(options: {
  readonly periodMs?: number;
  readonly timeoutMs?: number;
  readonly firstDelayMs?: number;
  /** Duration of the check with this number; the first check has number 1. */
  readonly durationMs?: (count: number) => number;
  /** Return value of `onResult`: true means `soon`. */
  readonly soon?: boolean;
  /** Time that a check continues after its signal was aborted. */
  readonly abortDelayMs?: number;
}) {
  const {
    periodMs = 10_000,
    timeoutMs = 1_000,
    firstDelayMs = 0,
    durationMs = () => 0,
    soon = false,
    abortDelayMs = 0,
  } = options;
  const clock = new ManualClock();
  const stop = new AbortController();
  const observed = {
    startTimes: [] as number[],
    results: [] as [number, CheckResult][],
    running: 0,
    maxRunning: 0,
    error: undefined as unknown,
  };
  const check: RunCheck = (signal) => {
    observed.startTimes.push(clock.now());
    observed.running += 1;
    observed.maxRunning = Math.max(observed.maxRunning, observed.running);
    return new Promise((resolve) => {
      const end = (): void => {
        observed.running -= 1;
        resolve({ kind: 'passed' });
      };
      const timer = clock.setTimer(durationMs(observed.startTimes.length), end);
      signal.addEventListener('abort', () => {
        timer.cancel();
        clock.setTimer(abortDelayMs, end);
      });
    });
  };
  const onResult = (result: CheckResult): 'atPeriod' | 'soon' => {
    observed.results.push([clock.now(), result]);
    return soon ? 'soon' : 'atPeriod';
  };
  const run = runProbe(
    { schedule: { periodMs, timeoutMs }, firstDelayMs, check, onResult, clock },
    stop.signal,
  );
  run.catch((reason: unknown) => (observed.error = reason));
  return { clock, stop, observed };
}

describe('runProbe', () => {
  it('makes checks after the first delay and then once per period, from start to start', async () => {
    const { clock, observed } = aProbe({ firstDelayMs: 300, durationMs: () => 400 });
    await clock.advance(30_000);
    expect(observed.startTimes).toEqual([300, 10_300, 20_300]);
    expect(observed.results).toEqual([700, 10_700, 20_700].map((at) => [at, { kind: 'passed' }]));
  });

  it('reports a failed check at its timeout', async () => {
    const { clock, observed } = aProbe({ durationMs: () => 60_000 });
    await clock.advance(11_500);
    const failed = { kind: 'failed', reason: 'no answer within 1 s' };
    expect(observed.results).toEqual([
      [1_000, failed],
      [11_000, failed],
    ]);
  });

  it('skips checks that are due while another check runs', async () => {
    const { clock, observed } = aProbe({
      periodMs: 100,
      timeoutMs: 1_000,
      durationMs: (count) => (count === 1 ? 250 : 0),
    });
    await clock.advance(500);
    expect(observed.startTimes).toEqual([0, 300, 400, 500]);
    expect(observed.maxRunning).toBe(1);
  });

  it('begins no check before a check that timed out has ended', async () => {
    const { clock, observed } = aProbe({
      periodMs: 100,
      timeoutMs: 50,
      durationMs: () => 60_000,
      abortDelayMs: 320,
    });
    await clock.advance(400);
    expect(observed.startTimes).toEqual([0, 400]);
    expect(observed.maxRunning).toBe(1);
  });

  it('makes early checks with growing delays up to the period while onResult returns soon', async () => {
    const { clock, observed } = aProbe({ periodMs: 1_000, soon: true });
    await clock.advance(20_000);
    const gaps = observed.startTimes
      .slice(1)
      .map((at, index) => at - (observed.startTimes[index] ?? 0));
    expect(gaps[0]).toBe(100);
    expect(gaps.every((gap, index) => index === 0 || gap >= (gaps[index - 1] ?? 0))).toBe(true);
    expect(gaps.at(-1)).toBe(1_000);
    gaps.forEach((gap, index) =>
      expect(gap).toBeLessThanOrEqual(105 + (observed.startTimes[index] ?? 0) / 4),
    ); // at most a quarter of the time since the start
  });

  it.each([
    { during: 'the first delay', at: 100 },
    { during: 'a check', at: 400 },
    { during: 'the end of a check that timed out', at: 1_310 },
    { during: 'the period', at: 5_000 },
  ])('stops during $during without a result and leaves no timer', async ({ at }) => {
    const { clock, stop, observed } = aProbe({
      firstDelayMs: 300,
      durationMs: () => 60_000,
      abortDelayMs: 50,
    });
    await clock.advance(at);
    const resultCount = observed.results.length;
    stop.abort();
    await clock.advance(50);
    expect(observed.error).toBeInstanceOf(StoppedError);
    expect([observed.results.length, observed.running, clock.pendingTimers]).toEqual([
      resultCount,
      0,
      0,
    ]);
    await settle();
  });
});

describe('computeNextDue', () => {
  it('returns the first whole number of intervals after the due time that is not before now', () => {
    const arbitraryTimes = fc.record({
      due: fc.nat(10_000),
      intervalMs: fc.integer({ min: 1, max: 500 }),
      elapsed: fc.nat(5_000),
    });
    fc.assert(
      fc.property(arbitraryTimes, ({ due, intervalMs, elapsed }) => {
        const next = computeNextDue(due, intervalMs, due + elapsed);
        expect((next - due) % intervalMs).toBe(0);
        expect(next).toBeGreaterThan(due);
        expect(next).toBeGreaterThanOrEqual(due + elapsed);
        expect(next - intervalMs === due || next - intervalMs < due + elapsed).toBe(true);
      }),
    );
  });
});
