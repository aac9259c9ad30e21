import { decodeRecord, isLive, parseKey } from '@cloudless/cluster-state';
import type { Operation, StateStore, StoreEntry } from '@cloudless/state-store';
import type { MuseumPiece } from './museum-piece.js';

/** Bugs that are planted in front of the coordinator's store. */
export const STORE_PIECES: readonly MuseumPiece[] = [
  {
    name: 'the same replica on two nodes after a cached read went back in time',
    story:
      'A control plane came back and answered from a cache that was older than what had been read before. What had been placed looked unplaced, was placed again, and ran on two nodes.',
    plant:
      "the first read of a coordinator's start shows replicas as they were 12 revisions before; their records are written without compare",
    planted: () => ({ store: withOldReplicas }),
    plan: {
      nodes: 4,
      users: 2,
      turmoilMs: 9_000,
      pauseMs: [200, 900],
      weights: { killCoordinator: 1 },
      drift: false,
    },
    checker: 'checks/commit-checkers.ts',
    found: /^\S+ moved from node-\d+ to/,
    seed: 17,
  },
  {
    name: 'orphans because state was deleted before the side effect',
    story:
      'A record was deleted first and what it stood for was to be stopped afterwards. A crash or an error in between left containers (in clouds: disks and machines) that nothing knew any more.',
    plant:
      'a replica that is to stop loses its record at once, and not when its agent has said that it has ended',
    planted: () => ({ store: withEarlyDeletion }),
    plan: { nodes: 4, users: 2, turmoilMs: 9_000, pauseMs: [200, 900], weights: {}, drift: false },
    checker: 'checks/container-checker.ts',
    found: /^6: \S+ still runs on node-\d+, and its record says that it has ended/,
    seed: 3,
  },
  {
    name: 'acknowledged before durable',
    story:
      'Stores answered when a write was in memory, or in the cache of the disk: after a crash what users had been told was done was not there.',
    plant: "every third write of a user's request is answered and never written",
    planted: () => ({ store: withLostWrites }),
    plan: { nodes: 4, users: 2, turmoilMs: 9_000, pauseMs: [200, 900], weights: {}, drift: false },
    checker: 'checks/ledger.ts',
    found: /^[13]: .* was acknowledged with generation \d+,/,
    seed: 2,
  },
];

/** How old the cache is, revisions. */
const CACHE_AGE = 12n;
const REPLICAS = '/replica/';

function withOldReplicas(store: StateStore): StateStore {
  let isFirst = true;
  return {
    ...store,
    range: async (request) => {
      const page = await store.range(request);
      if (!isFirst || page.revision <= CACHE_AGE) return page;
      isFirst = false;
      const cached = await store
        .range({ prefix: REPLICAS, revision: page.revision - CACHE_AGE })
        .catch(() => undefined);
      if (cached === undefined) return page;
      const old = new Map(cached.entries.map((entry) => [entry.key, entry]));
      const asCached = (entry: StoreEntry): StoreEntry =>
        entry.key.startsWith(REPLICAS) ? (old.get(entry.key) ?? entry) : entry;
      return { ...page, entries: page.entries.map(asCached) };
    },
    txn: (compares, operations) =>
      store.txn(
        compares.filter(({ key }) => !key.startsWith(REPLICAS)),
        operations,
      ),
  };
}

function withEarlyDeletion(store: StateStore): StateStore {
  const early = (operation: Operation): Operation => {
    const parsed = 'put' in operation ? parseKey(operation.put) : undefined;
    if (!('put' in operation) || parsed?.kind !== 'replica') return operation;
    const { desiredRunning, lost, phase } = decodeRecord('replica', parsed.id, operation.value);
    return desiredRunning || lost || !isLive({ phase }) ? operation : { delete: operation.put };
  };
  return { ...store, txn: (compares, operations) => store.txn(compares, operations.map(early)) };
}

function withLostWrites(store: StateStore): StateStore {
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
