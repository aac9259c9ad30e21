import { decodeRecord, isLive, parseKey } from '@cloudless/cluster-state';
import type { Operation, StateStore, StoreEntry } from '@cloudless/state-store';
import type { KnownBug } from './known-bug.js';

/** Bugs that are injected between the coordinator and its store. */
export const STORE_BUGS: readonly KnownBug[] = [
  {
    name: 'same replica on two nodes after a stale cached read',
    story:
      'A restarted control plane answered from a cache older than earlier reads. Placed replicas looked unplaced, were placed again, and ran on two nodes.',
    injection:
      'the first read of a starting coordinator shows replicas as of 12 revisions earlier; replica records are written without conditions',
    inject: () => ({ store: serveOldReplicas }),
    plan: {
      nodes: 4,
      users: 2,
      turmoilMs: 9_000,
      pauseMs: [200, 900],
      weights: { killCoordinator: 1 },
      drift: false,
    },
    checker: 'checks/commit-checkers.ts',
    expectedViolation: /^\S+ moved from node-\d+ to/,
    seed: 17,
  },
  {
    name: 'orphaned containers because state was deleted before the side effect',
    story:
      'A record was deleted before its container was stopped. A crash or an error in between left containers (in clouds: disks and machines) without any record.',
    injection:
      'the record of a stopping replica is deleted at once instead of after the agent confirms the stop',
    inject: () => ({ store: deleteStoppingReplicas }),
    plan: { nodes: 4, users: 2, turmoilMs: 9_000, pauseMs: [200, 900], weights: {}, drift: false },
    checker: 'checks/container-checker.ts',
    expectedViolation: /^6: \S+ still runs on node-\d+, but its record has ended/,
    seed: 3,
  },
  {
    name: 'write acknowledged before it was durable',
    story:
      'Stores acknowledged writes that were only in memory or in the disk cache. After a crash acknowledged changes were missing.',
    injection: 'every third write of a user request is acknowledged but never written',
    inject: () => ({ store: loseWrites }),
    plan: { nodes: 4, users: 2, turmoilMs: 9_000, pauseMs: [200, 900], weights: {}, drift: false },
    checker: 'checks/acknowledgement-checker.ts',
    expectedViolation: /^[13]: .* was acknowledged with generation \d+,/,
    seed: 2,
  },
];

/** Age of the stale cache in revisions. */
const CACHE_AGE = 12n;
const REPLICA_PREFIX = '/replica/';

function serveOldReplicas(store: StateStore): StateStore {
  let isFirst = true;
  return {
    ...store,
    range: async (request) => {
      const page = await store.range(request);
      if (!isFirst || page.revision <= CACHE_AGE) return page;
      isFirst = false;
      const cached = await store
        .range({ prefix: REPLICA_PREFIX, revision: page.revision - CACHE_AGE })
        .catch(() => undefined);
      if (cached === undefined) return page;
      const cachedByKey = new Map(cached.entries.map((entry) => [entry.key, entry]));
      const toCached = (entry: StoreEntry): StoreEntry =>
        entry.key.startsWith(REPLICA_PREFIX) ? (cachedByKey.get(entry.key) ?? entry) : entry;
      return { ...page, entries: page.entries.map(toCached) };
    },
    txn: (compares, operations) =>
      store.txn(
        compares.filter(({ key }) => !key.startsWith(REPLICA_PREFIX)),
        operations,
      ),
  };
}

function deleteStoppingReplicas(store: StateStore): StateStore {
  const deleteAtOnce = (operation: Operation): Operation => {
    const parsed = 'put' in operation ? parseKey(operation.put) : undefined;
    if (!('put' in operation) || parsed?.kind !== 'replica') return operation;
    const { desiredRunning, lost, phase } = decodeRecord('replica', parsed.id, operation.value);
    return desiredRunning || lost || !isLive({ phase }) ? operation : { delete: operation.put };
  };
  return {
    ...store,
    txn: (compares, operations) => store.txn(compares, operations.map(deleteAtOnce)),
  };
}

function loseWrites(store: StateStore): StateStore {
  let count = 0;
  return {
    ...store,
    txn: async (compares, operations) => {
      const isRequest = operations.some(
        (operation) => 'put' in operation && operation.put.startsWith('/request/'),
      );
      if (isRequest && (count += 1) % 3 === 0) return { revision: await store.revision() };
      return store.txn(compares, operations);
    },
  };
}
