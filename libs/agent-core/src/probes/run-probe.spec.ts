import fc from 'fast-check';
import { StoppedError } from '@cloudless/base';
import { ManualClock, settle } from '@cloudless/base/testing';
import type { CheckResult } from './probe-state.js';
import { computeNextDue, runProbe, type RunCheck } from './run-probe.js';

/** Runs a probe on virtual time, with the given duration for each check. */
function aProbe(options: {
  readonly periodMs?: number;
  readonly timeoutMs?: number;
  readonly firstDelayMs?: number;
  readonly lengthMs?: (count: number) => number;
  readonly soon?: boolean;
  /** Time that a check continues after its signal was aborted. */
  readonly lingersMs?: number;
}) {
  const {
    periodMs = 10_000,
    timeoutMs = 1_000,
    firstDelayMs = 0,
    lengthMs = () => 0,
    soon = false,
    lingersMs = 0,
  } = options;
  const clock = new ManualClock();
  const stop = new AbortController();
  const seen = {
    begun: [] as number[],
    results: [] as [number, CheckResult][],
    under: 0,
    most: 0,
    ended: undefined as unknown,
  };
  const check: RunCheck = (signal) => {
    seen.begun.push(clock.now());
    seen.under += 1;
    seen.most = Math.max(seen.most, seen.under);
    return new Promise((resolve) => {
      const end = (): void => {
        seen.under -= 1;
        resolve({ kind: 'passed' });
      };
      const timer = clock.setTimer(lengthMs(seen.begun.length), end);
      signal.addEventListener('abort', () => {
        timer.cancel();
        clock.setTimer(lingersMs, end);
      });
    });
  };
  const onResult = (result: CheckResult): 'atPeriod' | 'soon' => {
    seen.results.push([clock.now(), result]);
    return soon ? 'soon' : 'atPeriod';
  };
  const run = runProbe(
    { schedule: { periodMs, timeoutMs }, firstDelayMs, check, onResult, clock },
    stop.signal,
  );
  run.catch((reason: unknown) => (seen.ended = reason));
  return { clock, stop, seen };
}

describe('runProbe', () => {
  it('makes checks after the first delay and then once per period, from start to start', async () => {
    const { clock, seen } = aProbe({ firstDelayMs: 300, lengthMs: () => 400 });
    await clock.advance(30_000);
    expect(seen.begun).toEqual([300, 10_300, 20_300]);
    expect(seen.results).toEqual([700, 10_700, 20_700].map((at) => [at, { kind: 'passed' }]));
  });

  it('fails a check at its timeout', async () => {
    const { clock, seen } = aProbe({ lengthMs: () => 60_000 });
    await clock.advance(11_500);
    const failed = { kind: 'failed', reason: 'no answer within 1 s' };
    expect(seen.results).toEqual([
      [1_000, failed],
      [11_000, failed],
    ]);
  });

  it('skips checks that are due while another one runs', async () => {
    const { clock, seen } = aProbe({
      periodMs: 100,
      timeoutMs: 1_000,
      lengthMs: (count) => (count === 1 ? 250 : 0),
    });
    await clock.advance(500);
    expect(seen.begun).toEqual([0, 300, 400, 500]);
    expect(seen.most).toBe(1);
  });

  it('waits for the end of a check that timed out', async () => {
    const { clock, seen } = aProbe({
      periodMs: 100,
      timeoutMs: 50,
      lengthMs: () => 60_000,
      lingersMs: 320,
    });
    await clock.advance(400);
    expect(seen.begun).toEqual([0, 400]);
    expect(seen.most).toBe(1);
  });

  it('makes early checks while told so, with growing delay up to the period', async () => {
    const { clock, seen } = aProbe({ periodMs: 1_000, soon: true });
    await clock.advance(20_000);
    const gaps = seen.begun.slice(1).map((at, index) => at - (seen.begun[index] ?? 0));
    expect(gaps[0]).toBe(100);
    expect(gaps.every((gap, index) => index === 0 || gap >= (gaps[index - 1] ?? 0))).toBe(true);
    expect(gaps.at(-1)).toBe(1_000);
    gaps.forEach((gap, index) =>
      expect(gap).toBeLessThanOrEqual(105 + (seen.begun[index] ?? 0) / 4),
    ); // a quarter too late
  });

  it.each([
    { during: 'the first delay', at: 100 },
    { during: 'a check', at: 400 },
    { during: 'a check given up', at: 1_310 },
    { during: 'the period', at: 5_000 },
  ])('stops during $during without a result and leaves no timer', async ({ at }) => {
    const { clock, stop, seen } = aProbe({
      firstDelayMs: 300,
      lengthMs: () => 60_000,
      lingersMs: 50,
    });
    await clock.advance(at);
    const told = seen.results.length;
    stop.abort();
    await clock.advance(50);
    expect(seen.ended).toBeInstanceOf(StoppedError);
    expect([seen.results.length, seen.under, clock.pendingTimers]).toEqual([told, 0, 0]);
    await settle();
  });
});

describe('computeNextDue', () => {
  it('is on the grid, not before now, after the previous check, and skips no more than necessary', () => {
    const arb = fc.record({
      due: fc.nat(10_000),
      interval: fc.integer({ min: 1, max: 500 }),
      late: fc.nat(5_000),
    });
    fc.assert(
      fc.property(arb, ({ due, interval, late }) => {
        const next = computeNextDue(due, interval, due + late);
        expect((next - due) % interval).toBe(0);
        expect(next).toBeGreaterThan(due);
        expect(next).toBeGreaterThanOrEqual(due + late);
        expect(next - interval === due || next - interval < due + late).toBe(true);
      }),
    );
  });
});
