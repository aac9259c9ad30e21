import { jest } from '@jest/globals';
import type { Clock } from '@cloudless/base';
import type { FaultKind } from './faults/fault-plan.js';
import type { Planted } from './planted.js';
import { runSeed } from './run/run-seed.js';

/** Whole worlds run in each test, however busy the machine is. */
jest.setTimeout(120_000);

/** Worlds are tried until one finds the fault. */
const MOST_SEEDS = 12;

/**
 * Faults that are planted, each with the checker that has to find it; those that have hurt others
 * are in `museum/`.
 */
const PLANTED: readonly {
  readonly name: string;
  readonly planted: Planted;
  readonly weights: Partial<Record<FaultKind, number>>;
  readonly turmoilMs?: number;
  readonly found: RegExp;
}[] = [
  {
    name: 'a runtime that does not tell a new agent what runs',
    planted: {
      runtime: (runtime) => ({ ...runtime, list: async () => (await runtime.list()).slice(0, 0) }),
    },
    weights: { killAgent: 1 },
    found: /^6: .* (runs twice|still runs on)/,
  },
  {
    name: 'an agent that forgets its stop orders over a restart',
    planted: {
      agentStore: (store) => ({
        ...store,
        saveReplica: (replica) => {
          const { end: _forgotten, ...kept } = replica;
          return store.saveReplica(kept);
        },
      }),
    },
    weights: { killAgent: 1, slowAgentDisk: 1 },
    found: /^(6|7|15|17): /,
  },
  {
    name: 'an agent whose restarts are never due',
    planted: {
      agentClock: (clock) =>
        withTimers(clock, (delayMs) => (delayMs >= 99 && delayMs < 890 ? 1e9 : delayMs)),
    },
    weights: { containerCrashes: 1 },
    found: /^14: .* was not restarted/,
  },
  {
    name: 'pings that are answered and not heard',
    planted: {
      connection: (connection) =>
        Object.assign(Object.create(connection), { ping: () => Promise.resolve() }),
    },
    weights: {},
    turmoilMs: 16_000,
    found: /^17: /,
  },
  {
    name: 'an agent that keeps what it was told to forget',
    planted: { agentStore: (store) => ({ ...store, removeReplica: () => Promise.resolve() }) },
    weights: {},
    found: /^8: not converged .* still remembers/,
  },
];

describe('a planted fault is found', () => {
  it.each(PLANTED)('$name', async ({ planted, weights, found, turmoilMs = 9_000 }) => {
    const plan = {
      nodes: 4,
      users: 2,
      turmoilMs,
      pauseMs: [200, 900] as const,
      weights,
      drift: false,
    };
    for (let seed = 1; seed <= MOST_SEEDS; seed += 1) {
      const { violations } = await runSeed(seed, { planted, plan });
      if (violations.some((violation) => found.test(violation))) return;
      expect(violations).toEqual([]); // nothing else is blamed before
    }
    throw new Error(`${MOST_SEEDS} worlds did not find it`);
  });

  it('and a world without one is in order', async () => {
    const { violations, convergedMs } = await runSeed(1, { plan: { nodes: 4, weights: {} } });
    expect({ violations, converged: convergedMs !== undefined }).toEqual({
      violations: [],
      converged: true,
    });
  });
});

function withTimers(clock: Clock, delayOf: (delayMs: number) => number): Clock {
  return { ...clock, setTimer: (delayMs, action) => clock.setTimer(delayOf(delayMs), action) };
}
