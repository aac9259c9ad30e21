import fc from 'fast-check';
import { create } from '@bufbuild/protobuf';
import { NodeRecordSchema } from '@cloudless/api/store';
import { createSeededRandom, silentLog } from '@cloudless/base';
import { ManualClock } from '@cloudless/base/testing';
import { createMemoryStateStore, type StateStore } from '@cloudless/state-store';
import { streamChangesAfter } from './history.js';
import { openClusterState, type ClusterState } from './index.js';
import { encodeRecord } from './records/records.js';
import { RecentChanges } from './view/recent-changes.js';
import { SharedRead } from './view/shared-read.js';
import { ViewFollower } from './view/view-follower.js';

const aStore = (historyLimit = 1_000): StateStore =>
  createMemoryStateStore({ clock: new ManualClock(), historyLimit });
const open = (store: StateStore): Promise<ClusterState> =>
  openClusterState({
    store,
    clock: new ManualClock(),
    random: createSeededRandom(1),
    log: silentLog,
    holder: 'test',
  });
const aNode = (id: string, zone = '') => create(NodeRecordSchema, { id, zone });
const putNode = (state: ClusterState, id: string, zone = '') =>
  state.commit(state.transaction().put('node', id, aNode(id, zone)));
const never = new AbortController().signal;

/** A store whose watches wait for the promise `gate.held` before each batch. */
function withGate(store: StateStore) {
  const gate: { held: Promise<void> } = { held: Promise.resolve() };
  const watch: StateStore['watch'] = async function* (request) {
    for await (const batch of store.watch(request)) {
      await gate.held;
      yield batch;
    }
  };
  return { gate, store: Object.assign(Object.create(store) as StateStore, { watch }) };
}

describe('ClusterState.commit', () => {
  it.each(['changed', 'deleted'] as const)(
    'rejects with a conflict only when the view shows the record that was %s',
    async (change) => {
      const shared = aStore();
      const { gate, store } = withGate(shared);
      const state = await open(store);
      await putNode(state, 'n', 'a');
      const read = state.view().node('n')!;
      let release = (): void => undefined;
      gate.held = new Promise((resolve) => (release = resolve));
      const key = '/node/n';
      await shared.txn(
        [],
        change === 'deleted'
          ? [{ delete: key }]
          : [{ put: key, value: (await shared.get(key))!.value }],
      );
      let settled = false;
      const refused = state.commit(
        state.transaction().require('node', 'n', read).put('node', 'n', aNode('n', 'b')),
      );
      refused.catch(() => (settled = true));
      for (let turn = 0; turn < 50; turn += 1) await Promise.resolve();
      expect(settled).toBe(false);
      release();
      await expect(refused).rejects.toMatchObject({ kind: 'conflict' });
      expect(state.view().node('n')?.revision).toBe(
        change === 'deleted' ? undefined : await shared.revision(),
      );
      await state.close();
    },
  );
});

describe('ClusterState.changesAfter', () => {
  it('streams the stored changes of the requested kinds, then the changes that are committed later', async () => {
    const state = await open(aStore());
    const start = await putNode(state, 'a');
    await putNode(state, 'b', 'z1');
    await state.commit(state.transaction().event({ reason: 'Other' }));
    await state.commit(state.transaction().delete('node', 'a').put('node', 'c', aNode('c')));
    const seen: string[] = [];
    for await (const { revision, changes } of state.changesAfter(start, ['node'], never)) {
      seen.push(
        `${revision - start}: ${changes.map(({ id, after }) => `${id} ${after === undefined ? 'went' : 'is'}`).join(', ')}`,
      );
      if (seen.length === 3) void putNode(state, 'd');
      if (seen.length === 4) break;
    }
    expect(seen).toEqual(['1: b is', '2: ', '3: a went, c is', '4: d is']);
    await state.close();
  });

  it('rejects a compacted and a future revision with different messages', async () => {
    const store = aStore(5);
    const former = await open(store);
    const start = await putNode(former, 'a');
    for (let count = 0; count < 20; count += 1) await putNode(former, 'a');
    await former.close();
    const state = await open(store); // without recent changes
    const newest = state.view().revision;
    await expect(state.changesAfter(start, ['node'], never).next()).rejects.toMatchObject({
      kind: 'compacted',
      message: `what changed after revision ${start} is no longer kept; list or watch again, without after_revision`,
    });
    await expect(state.recordsAt('node', start)).rejects.toMatchObject({ kind: 'compacted' });
    const future = {
      kind: 'compacted',
      message:
        `revision ${newest + 1n} does not exist, the newest is ${newest}: it belongs to another cluster, or this cluster was restored to an ` +
        'older state; list or watch again, without after_revision',
    };
    await expect(state.changesAfter(newest + 1n, ['node'], never).next()).rejects.toMatchObject(
      future,
    );
    await expect(state.checkRevision(newest + 1n)).rejects.toMatchObject(future);
    await state.close();
  });

  it('ends when its signal is aborted, and fails as unavailable when the view ends', async () => {
    const state = await open(aStore());
    const stopping = new AbortController();
    const stopped = state.changesAfter(state.view().revision, ['node'], stopping.signal).next();
    const left = state.changesAfter(state.view().revision, ['node'], never).next();
    const ended: string[] = [];
    state.onEnd(({ message }) => ended.push(message));
    for (let turn = 0; turn < 50; turn += 1) await Promise.resolve();
    stopping.abort();
    expect(await stopped).toEqual({ done: true, value: undefined });
    void left.catch(() => undefined);
    await state.close();
    await expect(left).rejects.toMatchObject({ kind: 'unavailable' });
    expect(ended).toEqual(['the coordinator is stopping']);
    state.onEnd(({ kind }) => ended.push(kind));
    expect(ended).toEqual(['the coordinator is stopping', 'unavailable']);
  });
});

describe('many readers of ClusterState.changesAfter', () => {
  /** A store that counts its watches. */
  function withWatchCount(store: StateStore) {
    const counts = { opened: 0, open: 0 };
    const watch: StateStore['watch'] = async function* (request) {
      counts.opened += 1;
      counts.open += 1;
      try {
        yield* store.watch(request);
      } finally {
        counts.open -= 1;
      }
    };
    return { counts, store: Object.assign(Object.create(store) as StateStore, { watch }) };
  }

  /** The history of a follower that keeps few recent changes. */
  function withFewRecentChanges(store: StateStore, follower: ViewFollower) {
    // A revision of these tests has 12 bytes for each of the records before and after.
    const recent = new RecentChanges(follower, { revisions: 10, bytes: 150, unreadBytes: 50 });
    return { store, follower, recent, newestRevision: new SharedRead(() => store.revision()) };
  }

  it('share the watch of the view, also those that begin in the recent past', async () => {
    const { counts, store } = withWatchCount(aStore());
    const state = await open(store);
    const start = await putNode(state, 'past');
    await putNode(state, 'past', 'z');
    const readers = Array.from({ length: 20 }, (_, index) =>
      state.changesAfter(index % 2 === 0 ? start : state.view().revision, ['node'], never),
    );
    for (const [index, reader] of readers.entries())
      if (index % 2 === 0) expect((await reader.next()).value?.revision).toBe(start + 1n);
    const reading = Promise.all(readers.map((reader) => reader.next()));
    await Promise.resolve();
    const revision = await putNode(state, 'a');
    for (const { value } of await reading) expect(value).toMatchObject({ revision });
    expect(counts).toEqual({ opened: 1, open: 1 });
    await state.close();
  });

  it('get every revision once and in order, however slow they are', () =>
    fc.assert(
      fc.asyncProperty(
        fc.array(fc.record({ commits: fc.nat(20), reads: fc.nat(20) }), { maxLength: 8 }),
        async (steps) => {
          const { counts, store } = withWatchCount(aStore());
          const follower = new ViewFollower(store, silentLog);
          await follower.start();
          const source = withFewRecentChanges(store, follower);
          const reader = streamChangesAfter(source, follower.view.revision, ['node'], never);
          let next = follower.view.revision + 1n;
          const read = async (): Promise<void> => {
            const { value } = await reader.next();
            expect(value?.revision).toBe(next);
            expect(value?.changes).toHaveLength(next % 3n === 0n ? 0 : 1);
            next += 1n;
          };
          const commit = async (): Promise<void> => {
            const isOther = (follower.view.revision + 1n) % 3n === 0n;
            const key = isOther ? '/other/n' : '/node/n';
            const value = encodeRecord('node', aNode('n')).bytes;
            const { revision } = await store.txn([], [{ put: key, value }]);
            await follower.waitForRevision(revision);
          };
          for (const { commits, reads } of steps) {
            for (let count = 0; count < commits; count += 1) await commit();
            for (let count = 0; count < reads && next <= follower.view.revision; count += 1)
              await read();
          }
          while (next <= follower.view.revision) await read();
          expect(counts.open).toBeLessThanOrEqual(2);
          await follower.close();
        },
      ),
    ));

  it('read the history of the store when the view has jumped to a snapshot', async () => {
    const store = aStore();
    let watches = 0;
    const watch: StateStore['watch'] = async function* (request) {
      watches += 1;
      if (watches > 1) yield* store.watch(request);
      else
        await new Promise((resolve) =>
          request.signal?.addEventListener('abort', () => resolve(undefined)),
        );
    };
    const deaf = Object.assign(Object.create(store) as StateStore, { watch });
    const put = async (zone: string): Promise<bigint> => {
      const value = encodeRecord('node', aNode('n', zone)).bytes;
      return (await store.txn([], [{ put: '/node/n', value }])).revision;
    };
    const start = await put('a');
    const follower = new ViewFollower(deaf, silentLog);
    await follower.start();
    const source = withFewRecentChanges(deaf, follower);
    const reader = streamChangesAfter(source, start, ['node'], never);
    const first = reader.next();
    const revisions = [await put('b'), await put('c')];
    follower.reload();
    const seen = [await first, await reader.next()].map(({ value }) => value?.revision);
    expect(seen).toEqual(revisions);
    await follower.close();
  });
});

describe('ClusterState.recordsAt', () => {
  it('returns all records of a kind at an older revision, over many pages', async () => {
    const state = await open(aStore(10_000));
    for (let start = 0; start < 1_200; start += 90) {
      const transaction = state.transaction();
      for (let index = start; index < start + 90; index += 1)
        transaction.put('node', `n${index}`, aNode(`n${index}`, 'old'));
      await state.commit(transaction);
    }
    const then = state.view().revision;
    await state.commit(
      state.transaction().delete('node', 'n7').put('node', 'n8', aNode('n8', 'new')),
    );
    const before = await state.recordsAt('node', then);
    expect([before.size, before.get('n7')?.zone, before.get('n8')?.zone]).toEqual([
      1_260,
      'old',
      'old',
    ]);
    await state.close();
  });
});
