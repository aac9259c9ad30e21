import { jest } from '@jest/globals';
import type { Clock } from '@cloudless/base';
import type { FaultKind } from '../faults/fault-plan.js';
import type { InjectedBug } from '../sim-cluster/injected-bug.js';
import { runSeed } from '../run/run-seed.js';

/** Each test runs whole worlds, which takes long on a busy machine. */
jest.setTimeout(120_000);

/** Largest number of worlds to try until one finds the bug. */
const MAX_SEEDS = 12;

/**
 * Injected bugs, each with the checker that must find it. Bugs known from the field are in
 * `bug-catalogue/`.
 */
const INJECTED_BUGS: readonly {
  readonly name: string;
  readonly injected: InjectedBug;
  readonly weights: Partial<Record<FaultKind, number>>;
  readonly turmoilMs?: number;
  /** Matches the violation that the checker reports. */
  readonly expectedViolation: RegExp;
}[] = [
  {
    name: 'a runtime that does not list running containers to a new agent',
    injected: {
      runtime: (runtime) => ({ ...runtime, list: async () => (await runtime.list()).slice(0, 0) }),
    },
    weights: { killAgent: 1 },
    expectedViolation: /^6: .* (runs twice|still runs on)/,
  },
  {
    name: 'an agent that forgets its stop orders across a restart',
    injected: {
      agentStore: (store) => ({
        ...store,
        saveReplica: (replica) => {
          const { end: _forgotten, ...kept } = replica;
          return store.saveReplica(kept);
        },
      }),
    },
    weights: { killAgent: 1, slowAgentDisk: 1 },
    expectedViolation: /^(6|7|15|17): /,
  },
  {
    name: 'an agent that forgets on a full disk which replicas it has stopped',
    injected: { agentStore: (store) => ({ ...store, markStopped: async () => undefined }) },
    weights: { killAgent: 3, fullAgentDisk: 6 },
    expectedViolation: /^(6|7|15|17): /,
  },
  {
    name: 'an agent that never restarts ended containers',
    injected: {
      agentClock: (clock) =>
        withTimers(clock, (delayMs) => (delayMs >= 99 && delayMs < 890 ? 1e9 : delayMs)),
    },
    weights: { containerCrashes: 1 },
    expectedViolation: /^14: .* was not restarted/,
  },
  {
    name: 'pings that are answered but do not renew the lease',
    injected: {
      connection: (connection) =>
        Object.assign(Object.create(connection), { ping: () => Promise.resolve() }),
    },
    weights: {},
    turmoilMs: 16_000,
    expectedViolation: /^17: /,
  },
  {
    name: 'an agent that keeps replicas that it was ordered to forget',
    injected: { agentStore: (store) => ({ ...store, removeReplica: () => Promise.resolve() }) },
    weights: {},
    expectedViolation: /^8: not converged .* still stores/,
  },
];

describe('injected bug', () => {
  it.each(INJECTED_BUGS)(
    'is found by its checker: $name',
    async ({ injected, weights, expectedViolation, turmoilMs = 9_000 }) => {
      const plan = {
        nodes: 4,
        users: 2,
        turmoilMs,
        pauseMs: [200, 900] as const,
        weights,
        drift: false,
      };
      for (let seed = 1; seed <= MAX_SEEDS; seed += 1) {
        const { violations } = await runSeed(seed, { injected, plan });
        if (violations.some((violation) => expectedViolation.test(violation))) return;
        expect(violations).toEqual([]); // No other violation may come first.
      }
      throw new Error(`${MAX_SEEDS} worlds did not find the bug`);
    },
  );

  it('is the only cause of violations: a world without an injected bug converges without any', async () => {
    const { violations, convergedMs } = await runSeed(1, { plan: { nodes: 4, weights: {} } });
    expect({ violations, converged: convergedMs !== undefined }).toEqual({
      violations: [],
      converged: true,
    });
  });
});

/** Replaces the delays of a clock's timers. */
function withTimers(clock: Clock, delayOf: (delayMs: number) => number): Clock {
  return { ...clock, setTimer: (delayMs, action) => clock.setTimer(delayOf(delayMs), action) };
}
