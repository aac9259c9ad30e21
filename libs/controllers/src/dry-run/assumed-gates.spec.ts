import { NO_ROLLOUT, type RolloutState } from '@cloudless/rollout';
import { startGatedWait } from './assumed-gates.js';

describe('startGatedWait', () => {
  const nowMs = 100_000;
  const reached: RolloutState = { ...NO_ROLLOUT, phase: 'inProgress', stepReachedAtMs: 10_000 };

  it.each([
    { name: 'from the start of the step without a gate', state: reached, sinceMs: 10_000 },
    {
      name: 'from the time since when the gate is true',
      state: { ...reached, gate: { verdict: 'passed', sinceMs: 80_000 } as const },
      sinceMs: 80_000,
    },
    {
      name: 'from now when the gate is false',
      state: { ...reached, gate: { verdict: 'failed', sinceMs: 80_000 } as const },
      sinceMs: nowMs,
    },
    {
      name: 'from now when the gate has no result',
      state: { ...reached, gate: { verdict: 'noData', sinceMs: 10_000 } as const },
      sinceMs: nowMs,
    },
  ])('counts the wait $name', ({ state, sinceMs }) => {
    expect(startGatedWait(state, nowMs).stepReachedAtMs).toBe(sinceMs);
  });
});
