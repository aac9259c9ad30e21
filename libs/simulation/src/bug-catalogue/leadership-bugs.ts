import type { CoordinatorConnection } from '@cloudless/agent-core';
import type { WorkloadRecord } from '@cloudless/api/store';
import type { Clock } from '@cloudless/base';
import type { ClusterState, Stored } from '@cloudless/cluster-state';
import type { StateStore } from '@cloudless/state-store';
import { ignoreReconnectGrace } from './controller-bugs.js';
import type { KnownBug } from './known-bug.js';

/** Age of the stale cache, milliseconds. */
const CACHE_MS = 4_000;
/** Key of the leader record, which each decision compares. */
const LEADER_KEY = '/leader/leader';

const SEVERAL = {
  coordinators: 3,
  nodes: 4,
  users: 2,
  turmoilMs: 16_000,
  pauseMs: [300, 1_500],
  drift: false,
} as const;

/** Bugs of leadership, in worlds with several coordinators. */
export const LEADERSHIP_BUGS: readonly KnownBug[] = [
  {
    name: 'live work killed by a leader that was replaced while it was paused',
    story:
      'A leader was suspended for longer than its lease. When it woke, another one led, but it went on deciding by its old state: it declared nodes lost that had moved to the new leader, and stopped their work.',
    injection:
      'a coordinator does not notice that its leadership has ended, and its transactions do not compare the leader record',
    inject: () => ({ keepsLeading: true, term: decideForEver }),
    plan: { ...SEVERAL, weights: { pauseMember: 1 } },
    checker: 'checks/leadership-checkers.ts',
    expectedViolation: /^7: the leader of epoch \d+ changed /,
    seed: 1,
  },
  {
    name: 'write under an old term that arrived after the next leader was elected',
    story:
      'A leader sent a write and was cut off. The write was still on its way when its lease ended, and took effect after the next leader had read the state and decided otherwise.',
    injection: 'transactions do not compare the leader record',
    inject: () => ({ store: dropLeaderCompare }),
    plan: { ...SEVERAL, weights: { stallStore: 1, containerCrashes: 3 } },
    checker: 'checks/leadership-checkers.ts',
    expectedViolation: /^7: the leader of epoch \d+ changed /,
    seed: 2,
  },
  {
    name: 'two leaders because a leader measured its lease from the answer of a renewal',
    story:
      'A leader counted its lease from the moment at which it received the answer, not from the moment at which it sent the request. The answer was slow, the lease had ended in the store long before, and two leaders acted at once.',
    injection: 'the store answers renewals of a lease that has ended, and the answer has no age',
    inject: () => ({ store: alwaysRenew }),
    plan: { ...SEVERAL, weights: { cutStore: 1, stallStore: 1 } },
    checker: 'checks/leadership-checkers.ts',
    expectedViolation: /^7: .* act as leader at the same time/,
    seed: 1,
  },
  {
    name: 'read that went back in time because it was answered from a cache',
    story:
      'A user wrote, got the acknowledgement, and read an older state from a server with a cache. Programs that decide by what they have just written then overwrote it.',
    injection: 'the API reads each workload from a cache that is up to 4 s old',
    inject: () => ({
      state: (state, reader, clock) => (reader === 'api' ? serveFromCache(state, clock) : state),
    }),
    plan: { ...SEVERAL, users: 8, pauseMs: [3_000, 6_000], weights: { stepDown: 1 } },
    checker: 'checks/api-history.ts',
    expectedViolation: /^3: the calls of users: .*: no order explains /,
    seed: 5,
  },
  {
    name: 'mass rescheduling after a change of the leader',
    story:
      'The new leader had not heard from any node yet. It took their silence for their loss and moved all running work.',
    injection: 'a node that has not connected to the new leader since its election counts as lost',
    inject: () => ({ controllers: ignoreReconnectGrace }),
    plan: { ...SEVERAL, pauseMs: [1_000, 2_500], weights: { killMember: 1, stepDown: 1 } },
    checker: 'checks/false-losses.ts',
    expectedViolation: /^17: \S+ was declared lost, but node-\d+ was healthy all the time/,
    seed: 1,
  },
  {
    name: 'exclusive lease renewed by an old leader',
    story:
      'A leader that had been replaced went on answering nodes that the new leader could not reach, so these kept their exclusive work running. The new leader started the same work elsewhere.',
    injection:
      'the pings of nodes are answered at once, also while the nodes are cut off from the leader',
    inject: () => ({ connection: answerPings }),
    plan: {
      ...SEVERAL,
      exclusive: true,
      turmoilMs: 30_000,
      pauseMs: [1_000, 3_000],
      weights: { isolateNode: 1 },
    },
    checker: 'checks/container-checker.ts',
    expectedViolation: /^6: \S+ of \S+ starts, but \S+ still runs on node-\d+ and is EXCLUSIVE/,
    seed: 2,
  },
];

/** Shows each workload as of up to {@link CACHE_MS} ago, to those who look for its name. */
function serveFromCache(state: ClusterState, clock: Clock): ClusterState {
  const cached = new Map<string, { readonly shown: Stored<WorkloadRecord>; readonly at: number }>();
  const view = (): ReturnType<ClusterState['view']> => {
    const real = state.view();
    const workloadByName: typeof real.workloadByName = (namespace, name) => {
      const found = real.workloadByName(namespace, name);
      const entry = cached.get(name);
      if (found === undefined) return undefined;
      const isSame = entry?.shown.value.uid === found.value.uid;
      if (entry !== undefined && isSame && clock.now() - entry.at < CACHE_MS) return entry.shown;
      cached.set(name, { shown: found, at: clock.now() });
      return found;
    };
    return Object.assign(Object.create(real) as typeof real, { workloadByName });
  };
  return Object.assign(Object.create(state) as ClusterState, { view });
}

/** Commits without a look at the term and without the condition on the leader record. */
function decideForEver(state: ClusterState, store: StateStore): ClusterState {
  const commit: ClusterState['commit'] = async (transaction) => {
    const compares = transaction.toCompares().filter(({ key }) => key !== LEADER_KEY);
    const { revision } = await store.txn(compares, transaction.toOperations());
    await state.waitForRevision(revision);
    return revision;
  };
  return Object.assign(Object.create(state) as ClusterState, { commit, commitObserved: commit });
}

function dropLeaderCompare(store: StateStore): StateStore {
  return {
    ...store,
    txn: (compares, operations) =>
      store.txn(
        compares.filter(
          ({ key }) =>
            key !== LEADER_KEY ||
            operations.some((operation) => 'put' in operation && operation.put === LEADER_KEY),
        ),
        operations,
      ),
  };
}

function answerPings(connection: CoordinatorConnection): CoordinatorConnection {
  const ping = (): Promise<void> => {
    void connection.ping().catch(() => undefined);
    return Promise.resolve();
  };
  return Object.assign(Object.create(connection) as CoordinatorConnection, { ping });
}

function alwaysRenew(store: StateStore): StateStore {
  return { ...store, keepAlive: (lease) => store.keepAlive(lease).catch(() => undefined) };
}
