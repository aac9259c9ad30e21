import { create } from '@bufbuild/protobuf';
import fc from 'fast-check';
import { Event_Category as Category } from '@cloudless/api';
import {
  ClusterRecordSchema,
  NodeRecordSchema,
  ReplicaRecordSchema,
  WorkloadRecordSchema,
  type ReplicaRecord,
} from '@cloudless/api/store';
import { CloudlessError, createSeededRandom, silentLog, type Log } from '@cloudless/base';
import { ManualClock } from '@cloudless/base/testing';
import {
  RevisionConflictError,
  createMemoryStateStore,
  type StateStore,
} from '@cloudless/state-store';
import {
  LeadershipLostError,
  copyReplica,
  toNameKeyId,
  openClusterState,
  type ClusterState,
  type RecordChange,
  type Transaction,
} from './index.js';
import { encodeRecord, toKey } from './records/records.js';

const aStore = (historyLimit = 1_000): StateStore =>
  createMemoryStateStore({ clock: new ManualClock(), historyLimit });

function open(
  store: StateStore,
  options: {
    readonly seed?: number;
    readonly log?: Log;
    readonly clock?: ManualClock;
    readonly holder?: string;
  } = {},
) {
  const { seed = 1, log = silentLog, clock = new ManualClock(), holder = 'test' } = options;
  return openClusterState({ store, clock, random: createSeededRandom(seed), log, holder });
}

const aNode = (id: string, cordoned = false) => create(NodeRecordSchema, { id, cordoned });
const aReplica = (sequence: number, changes: Partial<{ nodeId: string }> = {}): ReplicaRecord =>
  create(ReplicaRecordSchema, {
    id: `u-${sequence}`,
    uid: 'u',
    sequence: BigInt(sequence),
    desiredRunning: true,
    ...changes,
  });
const putNode = (state: ClusterState, id: string, cordoned = false) =>
  state.commit(state.transaction().put('node', id, aNode(id, cordoned)));

describe('openClusterState', () => {
  it('adds the first records in the transaction that creates the cluster, and only there', async () => {
    const store = aStore();
    let calls = 0;
    const initializeCluster = (transaction: Transaction): void => {
      calls += 1;
      transaction.put('node', 'first', aNode('first'));
    };
    const options = { store, clock: new ManualClock(), log: silentLog, initializeCluster };
    const first = await openClusterState({
      ...options,
      holder: 'a',
      random: createSeededRandom(1),
    });
    const node = first.view().node('first');
    expect(node?.revision).toBe(1n);
    await first.close();
    const second = await openClusterState({
      ...options,
      holder: 'b',
      random: createSeededRandom(2),
    });
    expect(second.view().node('first')?.revision).toBe(node?.revision);
    expect(calls).toBe(1);
    await second.close();
  });

  it('creates the cluster id once, and takes a new epoch at each start', async () => {
    const store = aStore();
    const first = await open(store, { seed: 1 });
    expect(first.clusterId).toMatch(/^[0-9a-f]{16}$/);
    expect({ epoch: first.epoch, leading: first.isLeading, following: first.isFollowing }).toEqual({
      epoch: 1n,
      leading: true,
      following: true,
    });
    await first.close();
    const second = await open(store, { seed: 2 });
    expect({ clusterId: second.clusterId, epoch: second.epoch }).toEqual({
      clusterId: first.clusterId,
      epoch: 2n,
    });
    await second.close();
  });

  it('reads earlier records over many pages', async () => {
    const store = aStore();
    const first = await open(store);
    for (let start = 0; start < 2_500; start += 100) {
      const transaction = first.transaction();
      for (let index = start; index < start + 99; index += 1)
        transaction.put('node', `n${index}`, aNode(`n${index}`));
      await first.commit(transaction);
    }
    await first.close();
    const second = await open(store);
    expect([...second.view().nodes()]).toHaveLength(2_475);
    expect(second.view().node('n1777')?.value.id).toBe('n1777');
    await second.close();
  });

  it('refuses a store of another layout before it reads any other record', async () => {
    const store = aStore();
    const record = create(ClusterRecordSchema, { clusterId: 'c', schemaVersion: 2 });
    await store.txn(
      [],
      [
        { put: toKey('meta', 'cluster'), value: encodeRecord('meta', record).bytes },
        { put: toKey('node', 'n'), value: Uint8Array.of(255) },
      ],
    );
    await expect(open(store)).rejects.toMatchObject({
      kind: 'precondition',
      message:
        'the store has layout 2 and this version reads layout 1; start the version that wrote it',
    });
    expect(await store.get(toKey('leader', 'leader'))).toBeUndefined();
  });

  it('fails with the key of a record that cannot be read', async () => {
    const store = aStore();
    await store.txn([], [{ put: toKey('node', 'edge-1'), value: Uint8Array.of(10, 200) }]);
    await expect(open(store)).rejects.toMatchObject({
      kind: 'internal',
      message: 'the record at /node/edge-1 cannot be read',
    });
  });

  it('skips keys of unknown kinds', async () => {
    const store = aStore();
    await store.txn([], [{ put: '/quota/default', value: Uint8Array.of(255) }]);
    const state = await open(store);
    const revision = await store.txn([], [{ put: '/quota/default', value: Uint8Array.of(254) }]);
    await state.waitForRevision(revision.revision);
    await state.close();
  });

  it('gives coordinators that start together one cluster id and different epochs', async () => {
    const store = aStore();
    const states = await Promise.all([1, 2, 3, 4].map((seed) => open(store, { seed })));
    expect(new Set(states.map(({ clusterId }) => clusterId)).size).toBe(1);
    expect(states.map(({ epoch }) => epoch).sort()).toEqual([1n, 2n, 3n, 4n]);
    const newest = await store.revision();
    await Promise.all(states.map((state) => state.waitForRevision(newest)));
    expect(states.filter(({ isLeading }) => isLeading).map(({ epoch }) => epoch)).toEqual([4n]);
    await Promise.all(states.map((state) => state.close()));
  });
});

describe('ClusterState.commit', () => {
  it('resolves when the view shows the transaction', async () => {
    const state = await open(aStore());
    await fc.assert(
      fc.asyncProperty(fc.integer({ min: 0, max: 5 }), fc.boolean(), async (index, cordoned) => {
        const revision = await putNode(state, `n${index}`, cordoned);
        expect(state.view().node(`n${index}`)).toMatchObject({ value: { cordoned }, revision });
        expect(state.view().revision).toBe(revision);
      }),
      { numRuns: 50 },
    );
    await state.close();
  });

  it('refuses a transaction when a required record was changed, created or deleted, and writes nothing', async () => {
    const state = await open(aStore());
    await putNode(state, 'n');
    const read = state.view().node('n')!;
    await putNode(state, 'n', true);
    for (const stale of [
      state.transaction().require('node', 'n', read),
      state.transaction().require('node', 'n', 'absent'),
      state.transaction().require('node', 'other', read),
    ]) {
      await expect(state.commit(stale.put('node', 'trace', aNode('trace')))).rejects.toBeInstanceOf(
        RevisionConflictError,
      );
    }
    expect(state.view().node('trace')).toBeUndefined();
    await state.close();
  });

  it('fails as unavailable after the leadership was lost', async () => {
    const store = aStore();
    const [former, current] = [
      await open(store, { holder: 'former' }),
      await open(store, { holder: 'current' }),
    ];
    const refused = putNode(former, 'late');
    await expect(refused).rejects.toBeInstanceOf(LeadershipLostError);
    await expect(refused).rejects.toMatchObject({
      kind: 'unavailable',
      message: 'this coordinator no longer leads (its epoch was 1); ask the one that does',
    });
    await putNode(current, 'fine');
    await former.waitForRevision(current.view().revision);
    expect({ former: former.isLeading, current: current.isLeading }).toEqual({
      former: false,
      current: true,
    });
    expect([...former.view().nodes()].map(({ value }) => value.id)).toEqual(['fine']);
    await Promise.all([former.close(), current.close()]);
  });

  it('creates, updates and deletes a replica only when it is unchanged since it was read', async () => {
    const state = await open(aStore());
    await state.commit(state.transaction().createReplica(aReplica(1)));
    await expect(
      state.commit(state.transaction().createReplica(aReplica(1))),
    ).rejects.toMatchObject({ kind: 'conflict' });
    const read = state.view().replica('u-1')!;
    await state.commit(
      state.transaction().updateReplica(read, copyReplica(read.value, { nodeId: 'n1' })),
    );
    expect([...state.view().replicasOn('n1')]).toHaveLength(1);
    expect([...state.view().unplaced()]).toEqual([]);
    await expect(
      state.commit(state.transaction().updateReplica(read, read.value)),
    ).rejects.toMatchObject({ kind: 'conflict' });
    await expect(state.commit(state.transaction().deleteReplica(read))).rejects.toMatchObject({
      kind: 'conflict',
    });
    await state.commit(state.transaction().deleteReplica(state.view().replica('u-1')!));
    expect([...state.view().replicas()]).toEqual([]);
    await state.close();
  });

  it('writes the last value when a transaction puts a key twice, and counts the key once', async () => {
    const state = await open(aStore());
    const transaction = state
      .transaction()
      .put('node', 'n', aNode('n'))
      .put('node', 'n', aNode('n', true));
    expect(transaction.size).toBe(1);
    transaction.event({ reason: 'NodeCordoned' }).delete('node', 'never');
    expect(transaction.size).toBe(3);
    await state.commit(transaction);
    expect(transaction.size).toBe(3);
    expect(state.view().node('n')?.value.cordoned).toBe(true);
    await state.close();
  });

  it('resolves with the current revision when the transaction changes nothing', async () => {
    const state = await open(aStore());
    await expect(state.commit(state.transaction().delete('node', 'absent'))).resolves.toBe(
      state.view().revision,
    );
    await state.close();
  });
});

describe('events of a transaction', () => {
  it('get their time and id when the transaction is committed, not when they are added', async () => {
    const clock = new ManualClock(1_000);
    const state = await open(aStore(), { clock });
    const planned = state
      .transaction()
      .event({ reason: 'PlannedFirst', category: Category.ROLLOUT });
    await state.commit(state.transaction().event({ reason: 'CommittedFirst' }));
    await clock.advance(500);
    await state.commit(planned);
    expect(state.view().events()).toMatchObject([
      { reason: 'CommittedFirst', id: '0000000001-0000000000', time: { seconds: 1n, nanos: 0 } },
      {
        reason: 'PlannedFirst',
        id: '0000000001-0000000001',
        time: { seconds: 1n, nanos: 500_000_000 },
      },
    ]);
    await state.close();
  });

  it('sort after all events of earlier leaderships, and are not written by a refused transaction', async () => {
    const store = aStore();
    const first = await open(store);
    for (let count = 0; count < 12; count += 1)
      await first.commit(first.transaction().event({ reason: `First${count}` }));
    const second = await open(store);
    await expect(
      first.commit(first.transaction().event({ reason: 'Refused' })),
    ).rejects.toMatchObject({ kind: 'unavailable' });
    await second.commit(second.transaction().event({ reason: 'Second' }));
    const reasons = second
      .view()
      .events()
      .map(({ reason }) => reason);
    expect(reasons).toEqual([
      ...Array.from({ length: 12 }, (_, count) => `First${count}`),
      'Second',
    ]);
    await Promise.all([first.close(), second.close()]);
  });
});

describe('ClusterState.subscribe', () => {
  it('notifies listeners once of each commit, after the view shows it, with the records before and after', async () => {
    const state = await open(aStore());
    const notified: { changes: readonly RecordChange[]; shown: boolean }[] = [];
    const unsubscribe = state.subscribe((changes, revision) =>
      notified.push({ changes, shown: state.view().revision === revision }),
    );
    await state.commit(
      state.transaction().put('node', 'a', aNode('a')).put('node', 'b', aNode('b')),
    );
    await state.commit(state.transaction().delete('node', 'a'));
    unsubscribe();
    await putNode(state, 'c');
    expect(notified).toEqual([
      {
        shown: true,
        changes: [
          { kind: 'node', id: 'a', after: aNode('a') },
          { kind: 'node', id: 'b', after: aNode('b') },
        ],
      },
      { shown: true, changes: [{ kind: 'node', id: 'a', before: aNode('a') }] },
    ]);
    await state.close();
  });
});

/** A log that records warnings and errors. */
function aRecordingLog(): { readonly log: Log; readonly lines: string[] } {
  const lines: string[] = [];
  const keep = (level: string) => (message: string, fields?: object) =>
    void lines.push(`${level}: ${message} ${Object.keys(fields ?? {}).join(' ')}`);
  const log: Log = { ...silentLog, warn: keep('warn'), error: keep('error'), child: () => log };
  return { log, lines };
}

/** A store with some methods replaced. */
const replaceCalls = (store: StateStore, calls: Partial<StateStore>): StateStore =>
  Object.assign(Object.create(store) as StateStore, calls);

/**
 * A store whose watches deliver nothing while `hold` is pending, so that the store may compact
 * changes that a watch has not delivered.
 */
function withSlowWatch(store: StateStore, calls: Partial<StateStore> = {}) {
  const gate: { hold?: Promise<void> } = {};
  const watch: StateStore['watch'] = async function* (request) {
    for await (const batch of store.watch(request)) {
      await gate.hold;
      yield batch;
    }
  };
  return { gate, store: replaceCalls(store, { ...calls, watch }) };
}

function holdGate(gate: { hold?: Promise<void> }): { readonly release: () => void } {
  let release = (): void => undefined;
  gate.hold = new Promise((resolve) => (release = resolve));
  return { release };
}

/** Commits so many transactions that a store with a history of 10 has compacted the first. */
async function commitBeyondHistory(store: StateStore): Promise<void> {
  for (let index = 0; index < 100; index += 1) {
    const id = `n${index % 3}`;
    await store.txn(
      [],
      [{ put: toKey('node', id), value: encodeRecord('node', aNode(id, index % 2 === 0)).bytes }],
    );
  }
}

describe('a view that fell behind the store', () => {
  it('reads a new snapshot, notifies listeners of the differences, and follows the store again', async () => {
    const store = aStore(10);
    const { log, lines } = aRecordingLog();
    const { gate, store: slow } = withSlowWatch(store);
    const state = await open(slow, { log });
    await putNode(state, 'n0');
    await putNode(state, 'gone');
    await putNode(state, 'same');
    const notified: string[] = [];
    state.subscribe((changes) =>
      changes.forEach(({ id, before, after }) =>
        notified.push(
          `${id} ${before === undefined ? 'came' : after === undefined ? 'went' : 'changed'}`,
        ),
      ),
    );
    const { release } = holdGate(gate);
    await store.txn([], [{ delete: toKey('node', 'gone') }]);
    await commitBeyondHistory(store);
    release();
    await state.waitForRevision(await store.revision());
    expect(lines).toEqual(['warn: view fell behind the store, reading a new snapshot revision']);
    expect(notified.sort()).toEqual(['gone went', 'n0 changed', 'n1 came', 'n2 came']);
    expect(
      [...state.view().nodes()].map(({ value }) => `${value.id} ${value.cordoned}`).sort(),
    ).toEqual(['n0 false', 'n1 false', 'n2 true', 'same false']);
    await putNode(state, 'after');
    expect(state.view().node('after')).toBeDefined();
    await state.close();
  });

  it('reads the snapshot again when the store compacts its revision during the read', async () => {
    const store = aStore(10);
    let first = true;
    const range: StateStore['range'] = async (request) => {
      const page = await store.range(request);
      if (request.after === undefined && first) {
        first = false;
        await commitBeyondHistory(store);
      }
      return page;
    };
    const many = Array.from({ length: 100 }, (_, index) => ({
      put: toKey('node', `many${index}`),
      value: encodeRecord('node', aNode(`many${index}`)).bytes,
    }));
    for (let round = 0; round < 11; round += 1)
      await store.txn(
        [],
        many.map(({ put, value }) => ({ put: `${put}-${round}`, value })),
      );
    const state = await open(replaceCalls(store, { range }));
    expect([...state.view().nodes()]).toHaveLength(1_103);
    await state.close();
  });

  it.each([
    { name: 'cannot be read', reason: new Error('disk gone') },
    { name: 'is always compacted', reason: new CloudlessError('compacted', 'gone') },
  ])(
    'ends when the store $name, and fails commits and waits as unavailable',
    async ({ reason }) => {
      const store = aStore(10);
      let broken = false;
      const range: StateStore['range'] = (request) =>
        broken ? Promise.reject(reason) : store.range(request);
      const { log, lines } = aRecordingLog();
      const { gate, store: slow } = withSlowWatch(store, { range });
      const state = await open(slow, { log });
      const { release } = holdGate(gate);
      broken = true;
      const waiting = state.waitForRevision(10_000n);
      await commitBeyondHistory(store);
      release();
      await expect(waiting).rejects.toMatchObject({
        kind: 'unavailable',
        message: 'the state store failed',
        cause: reason,
      });
      expect(lines.at(-1)).toContain('error: state store watch failed error errorName');
      expect(state.isFollowing).toBe(false);
      await expect(putNode(state, 'n')).rejects.toMatchObject({ kind: 'unavailable' });
      await expect(state.waitForRevision(10_000n)).rejects.toMatchObject({ kind: 'unavailable' });
      await state.close();
    },
  );
});

describe('ClusterState', () => {
  it('ends its view at the last readable revision when a record cannot be read', async () => {
    const store = aStore();
    const { log, lines } = aRecordingLog();
    const state = await open(store, { log });
    const last = await putNode(state, 'fine');
    const { revision } = await store.txn(
      [],
      [
        { put: toKey('node', 'also-fine'), value: encodeRecord('node', aNode('also-fine')).bytes },
        { put: toKey('node', 'bad'), value: Uint8Array.of(10, 200) },
      ],
    );
    await expect(state.waitForRevision(revision)).rejects.toMatchObject({
      kind: 'unavailable',
      cause: { kind: 'internal', message: 'the record at /node/bad cannot be read' },
    });
    expect({ revision: state.view().revision, torn: state.view().node('also-fine') }).toEqual({
      revision: last,
      torn: undefined,
    });
    expect(lines).toHaveLength(1);
    await state.close();
  });

  it('ends its view and fails waits when the store is closed', async () => {
    const store = aStore();
    const state = await open(store);
    const waiting = state.waitForRevision(10_000n);
    void store.close();
    await expect(waiting).rejects.toMatchObject({
      kind: 'unavailable',
      cause: { message: 'the state store was closed' },
    });
    expect(state.isFollowing).toBe(false);
    await state.close();
  });

  it('leaves the store open, refuses commits and ends waits when it is closed, also when it is closed twice', async () => {
    const store = aStore();
    const { log, lines } = aRecordingLog();
    const state = await open(store, { log });
    const waiting = state.waitForRevision(10_000n);
    const closing = state.close();
    await expect(waiting).rejects.toMatchObject({
      kind: 'unavailable',
      message: 'the coordinator is stopping',
    });
    await closing;
    await state.close();
    await expect(putNode(state, 'n')).rejects.toMatchObject({ kind: 'unavailable' });
    expect(lines).toEqual([]);
    expect(await store.get(toKey('node', 'n'))).toBeUndefined();
    const next = await open(store);
    await next.close();
  });
});

it('ClusterView.workloadByName returns a workload by namespace and name', async () => {
  const state = await open(aStore());
  const record = create(WorkloadRecordSchema, { uid: 'u', namespace: 'default', name: 'web' });
  await state.commit(
    state
      .transaction()
      .put('workload', 'u', record)
      .put('name', toNameKeyId('default', 'web'), create(WorkloadRecordSchema, { uid: 'u' })),
  );
  expect(state.view().workloadByName('default', 'web')?.value).toEqual(record);
  expect(state.view().workloadByName('other', 'web')).toBeUndefined();
  await state.close();
});
