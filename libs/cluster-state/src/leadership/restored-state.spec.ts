import { create } from '@bufbuild/protobuf';
import { Event_Category as Category, Event_Severity as Severity } from '@cloudless/api';
import { NodeRecordSchema } from '@cloudless/api/store';
import { createSeededRandom, silentLog } from '@cloudless/base';
import { ManualClock, settle } from '@cloudless/base/testing';
import {
  MemoryStorage,
  createEngineStore,
  createMemoryStateStore,
  exportSnapshot,
  importSnapshot,
  type StateStore,
} from '@cloudless/state-store';
import {
  LeadershipLostError,
  RestoredStateError,
  markRestored,
  openClusterState,
  type ClusterState,
} from '../index.js';

const aStore = (): StateStore => createMemoryStateStore({ clock: new ManualClock() });
const open = (store: StateStore, holder = 'test') =>
  openClusterState({
    store,
    clock: new ManualClock(),
    random: createSeededRandom(1),
    log: silentLog,
    holder,
  });
const aNode = (state: ClusterState, id: string) =>
  state.transaction().put('node', id, create(NodeRecordSchema, { id }));
const systemEvents = (state: ClusterState) =>
  state
    .view()
    .events()
    .filter(({ category }) => category === Category.SYSTEM);

describe('a store that was rolled back', () => {
  it('commits observations, and refuses decisions with an error that names the command to accept the state', async () => {
    const state = await open(aStore());
    state.reportNewerState({ nodeId: 'node-7', epoch: 9n, orderRevision: 130n });
    await expect(state.commit(aNode(state, 'decided'))).rejects.toThrow(RestoredStateError);
    await expect(state.commit(aNode(state, 'decided'))).rejects.toThrow(
      /^the store went back in time: node "node-7" holds orders that this store has never issued, epoch 9 \(here: 1\) and order revision 130 \(here: \d\); nothing is started, stopped or changed until an operator accepts this state; to do so, run: cloudlessctl admin accept-restored-state$/,
    );
    await state.commitObserved(aNode(state, 'seen'));
    expect([...state.view().nodes()].map(({ value }) => value.id)).toEqual(['seen']);
    await state.close();
  });

  it('adds one event with the first node, and keeps the highest epoch and order revision of all nodes', async () => {
    const state = await open(aStore());
    state.reportNewerState({ nodeId: 'node-1', epoch: 2n, orderRevision: 0n });
    await settle();
    state.reportNewerState({ nodeId: 'node-2', epoch: 0n, orderRevision: 50n });
    state.reportNewerState({ nodeId: 'node-3', epoch: 1n, orderRevision: 40n });
    await settle();
    expect(systemEvents(state)).toMatchObject([
      { severity: Severity.ERROR, reason: 'StoreWentBackInTime', nodeId: 'node-1' },
    ]);
    expect(state.storeRolledBack).toMatchObject({
      nodeId: 'node-1',
      highestEpoch: 2n,
      highestOrderRevision: 50n,
    });
    await state.close();
  });

  it('is recognized by the next coordinator at its start', async () => {
    const store = aStore();
    const first = await open(store);
    first.reportNewerState({ nodeId: 'node-1', epoch: 5n, orderRevision: 0n });
    await settle();
    await first.close();
    const second = await open(store);
    expect(second.storeRolledBack).toMatchObject({ nodeId: 'node-1', highestEpoch: 5n });
    await expect(second.commit(aNode(second, 'decided'))).rejects.toThrow(RestoredStateError);
    await second.close();
  });

  it('gets an epoch and order revision above all reported ones when an operator accepts it', async () => {
    const state = await open(aStore());
    state.reportNewerState({ nodeId: 'node-1', epoch: 5n, orderRevision: 1_000n });
    const observed: (readonly [boolean, boolean])[] = [];
    state.subscribe(() => observed.push([state.isLeading, state.storeRolledBack !== undefined]));
    const accepted = await state.acceptRestoredState();
    expect(accepted!.epoch).toBeGreaterThan(5n);
    expect(accepted!.orderRevision).toBeGreaterThan(1_000n);
    expect({ epoch: state.epoch, orderRevision: state.orderRevision }).toEqual(accepted);
    expect(state.toOrderRevision(0n)).toBeGreaterThan(1_000n);
    await state.commit(aNode(state, 'decided'));
    // Listeners of the acceptance may commit immediately.
    expect(observed.at(-1)).toEqual([true, false]);
    expect(observed.every(([isLeading]) => isLeading)).toBe(true);
    expect(await state.acceptRestoredState()).toBeUndefined();
    await state.close();
  });

  it('is detected again when an agent reports a newer epoch after the acceptance', async () => {
    const state = await open(aStore());
    state.reportNewerState({ nodeId: 'node-1', epoch: 5n, orderRevision: 0n });
    const first = await state.acceptRestoredState();
    state.reportNewerState({ nodeId: 'node-2', epoch: first!.epoch + 10n, orderRevision: 0n });
    expect(state.storeRolledBack).toMatchObject({ nodeId: 'node-2' });
    expect((await state.acceptRestoredState())!.epoch).toBeGreaterThan(first!.epoch + 10n);
    await state.close();
  });

  it('is not accepted by a coordinator that has lost the leadership', async () => {
    const store = aStore();
    const older = await open(store, 'older');
    const newer = await open(store, 'newer');
    older.reportNewerState({ nodeId: 'node-1', epoch: newer.epoch, orderRevision: 0n });
    await settle();
    await expect(older.acceptRestoredState()).rejects.toThrow(LeadershipLostError);
    expect(newer.storeRolledBack).toBeUndefined();
    await Promise.all([older.close(), newer.close()]);
  });
});

describe('a store that was restored from a backup', () => {
  /** Restores a backup of a new cluster into another store. */
  async function restore(): Promise<StateStore> {
    const store = aStore();
    const state = await open(store);
    const storage = new MemoryStorage(1_000);
    const chunks = exportSnapshot(store, { clusterId: state.clusterId, schemaVersion: 1 });
    await importSnapshot(storage, chunks, markRestored);
    await state.close();
    return createEngineStore({ storage, clock: new ManualClock(), historyLimit: 1_000 });
  }

  it('refuses decisions before any node has connected, also with the next leader, and says why once', async () => {
    const store = await restore();
    for (const holder of ['one', 'two']) {
      const state = await open(store, holder);
      await settle();
      await expect(state.commit(aNode(state, 'decided'))).rejects.toThrow(
        /^the store was restored from a backup; nothing is started, stopped or changed until an operator accepts this state; when the nodes that still exist are connected, run: cloudlessctl admin accept-restored-state$/,
      );
      await state.commitObserved(aNode(state, 'seen'));
      expect(systemEvents(state)).toMatchObject([
        { severity: Severity.WARNING, reason: 'RestoredStateWaits' },
      ]);
      await state.close();
    }
  });

  it('commits decisions once an operator accepts it', async () => {
    const store = await restore();
    const state = await open(store);
    expect(await state.acceptRestoredState()).toBeDefined();
    expect(state.storeRolledBack).toBeUndefined();
    await state.commit(aNode(state, 'decided'));
    await state.close();
    const next = await open(store);
    expect(next.storeRolledBackReason).toBeUndefined();
    await next.close();
  });

  it('names the node that proves a newer state, and keeps this proof in its own backup', async () => {
    const store = await restore();
    const state = await open(store);
    state.reportNewerState({ nodeId: 'node-1', epoch: 5n, orderRevision: 0n });
    await settle();
    expect(state.storeRolledBackReason).toContain('node "node-1" holds orders');
    expect(systemEvents(state).map(({ reason }) => reason)).toContain('StoreWentBackInTime');
    const entry = (await store.get('/meta/cluster'))!;
    expect(markRestored(entry)).toBe(entry);
    await state.close();
  });
});

describe('getNewestOrderRevision', () => {
  it('returns the revision at which the next leadership began, and the current one for epoch 0 and later epochs', async () => {
    const store = aStore();
    const began: bigint[] = [];
    for (let count = 0; count < 3; count += 1) {
      const state = await open(store);
      began.push(state.orderRevision);
      await state.commit(aNode(state, `node-${count}`));
      await state.close();
    }
    const state = await open(store);
    expect([1n, 2n].map((epoch) => state.getNewestOrderRevision(epoch))).toEqual(began.slice(1));
    expect([0n, state.epoch, 9n].map((epoch) => state.getNewestOrderRevision(epoch))).toEqual(
      [1, 2, 3].map(() => state.orderRevision),
    );
    await state.close();
  });

  it('treats an epoch older than the last 100 leaderships as the oldest of them', async () => {
    const store = aStore();
    for (let count = 0; count < 105; count += 1) await (await open(store)).close();
    const state = await open(store);
    expect(state.getNewestOrderRevision(1n)).toBe(state.getNewestOrderRevision(5n));
    expect(state.getNewestOrderRevision(1n)).toBeLessThan(state.getNewestOrderRevision(50n));
    await state.close();
  });
});
