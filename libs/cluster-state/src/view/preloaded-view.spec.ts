import { jest } from '@jest/globals';
import { create } from '@bufbuild/protobuf';
import { WireType } from '@bufbuild/protobuf/wire';
import { ContainerFactsSchema } from '@cloudless/api';
import {
  ClusterRecordSchema,
  JoinTokenRecordSchema,
  NodeRecordSchema,
  type ReplicaRecord,
} from '@cloudless/api/store';
import { createSeededRandom, silentLog } from '@cloudless/base';
import { ManualClock, RecordingMeter } from '@cloudless/base/testing';
import { createMemoryStateStore, type StateStore } from '@cloudless/state-store';
import { createReplicaRecord, openClusterState, type ClusterState } from '../index.js';
import { encodeRecord, toKey } from '../records/records.js';
import { listDifferences } from '../testing/index.js';
import { PreloadedView } from './preloaded-view.js';

const clock = new ManualClock();
let store: StateStore;
let meter: RecordingMeter;

beforeEach(() => {
  store = createMemoryStateStore({ clock });
  meter = new RecordingMeter();
});
afterEach(() => store.close());

const open = (preloaded?: PreloadedView): Promise<ClusterState> =>
  openClusterState({
    ...{ store, clock, meter, holder: 'test', log: silentLog, random: createSeededRandom(1) },
    ...(preloaded === undefined ? {} : { preloaded }),
  });
const aReplica = (sequence: bigint): ReplicaRecord =>
  createReplicaRecord({ id: `u-${sequence}`, uid: 'u', sequence, nodeId: 'n', lastLines: ['x'] });

/** Writes records of several kinds: one with bytes, and two of a newer version. */
async function fill(): Promise<void> {
  const state = await open();
  const $unknown = [{ no: 999, wireType: WireType.LengthDelimited, data: Uint8Array.of(2, 7, 8) }];
  const newer = Object.assign(aReplica(2n), { $unknown });
  const newerInside = aReplica(3n);
  newerInside.container = Object.assign(create(ContainerFactsSchema, { pid: 1 }), { $unknown });
  const hmac = Uint8Array.of(1, 2, 3);
  await state.commit(
    state
      .transaction()
      .put('node', 'n', create(NodeRecordSchema, { id: 'n' }))
      .put('jointoken', 't', create(JoinTokenRecordSchema, { hmac }))
      .createReplica(aReplica(1n))
      .createReplica(newer)
      .createReplica(newerInside),
  );
  await state.close();
}

/** Gives all entries to a view, each in the same memory, as an engine may do. */
async function preload(): Promise<PreloadedView> {
  const preloaded = new PreloadedView();
  const { entries, revision } = await store.range({ prefix: '' });
  const memory = new Uint8Array(1_024);
  for (const { key, value, modRevision } of entries) {
    memory.set(value, 8);
    preloaded.add(key, memory.subarray(8, 8 + value.length), modRevision);
    memory.fill(0xff);
  }
  preloaded.end(revision);
  return preloaded;
}

const isEqual = (shown: unknown, stored: unknown): boolean => {
  expect(shown).toStrictEqual(stored);
  return true;
};

describe('openClusterState with preloaded records', () => {
  it('shows the view that reading the store gives', async () => {
    await fill();
    const state = await open(await preload());
    expect(await listDifferences(state, store, isEqual)).toEqual([]);
    expect(state.view().replicasOn('n')).toHaveLength(3);
    await state.close();
  });

  it('has the indexes of replicas that reading the store gives', async () => {
    await fill();
    const waiting = createReplicaRecord({
      id: 'w-1',
      uid: 'w',
      sequence: 1n,
      desiredRunning: true,
    });
    // Its id does not follow from its workload and sequence number.
    const irregular = createReplicaRecord({ id: 'other', uid: 'w', sequence: 2n, nodeId: 'n' });
    const writer = await open();
    await writer.commit(writer.transaction().createReplica(waiting).createReplica(irregular));
    await writer.close();
    const listIndexed = async (preloaded?: PreloadedView) => {
      const state = await open(preloaded);
      const view = state.view();
      const lists = [view.unplaced(), view.replicasOn('n'), view.replicasOf('w'), view.replicas()];
      const ids = lists.map((list) => [...list].map(({ value }) => value.id));
      const byId = ['u-1', 'w-1', 'other'].map((id) => view.replica(id)?.value.id);
      await state.close();
      return [...ids, byId];
    };
    const indexed = await listIndexed(await preload());
    expect(indexed).toEqual(await listIndexed());
    expect(indexed[0]).toEqual(['w-1']);
  });

  it('reads no record again, and counts each as decoded once', async () => {
    await fill();
    const preloaded = await preload();
    const { entries } = await store.range({ prefix: '' });
    const range = jest.spyOn(store, 'range');
    const state = await open(preloaded);
    expect(range).not.toHaveBeenCalled();
    expect(await meter.read('cloudless_state_records_decoded_total')).toBe(entries.length);
    await state.close();
  });

  it('follows the changes after the preload', async () => {
    await fill();
    const preloaded = await preload();
    const record = encodeRecord('node', create(NodeRecordSchema, { id: 'later' })).bytes;
    const { revision } = await store.txn([], [{ put: toKey('node', 'later'), value: record }]);
    const state = await open(preloaded);
    await state.waitForRevision(revision);
    expect(state.view().node('later')?.value.id).toBe('later');
    await state.close();
  });

  it('reads the store when the preload did not end', async () => {
    await fill();
    const state = await open(new PreloadedView());
    expect(state.view().node('n')?.value.id).toBe('n');
    await state.close();
  });

  it('refuses another layout before a record that it cannot read', async () => {
    const layout = create(ClusterRecordSchema, { clusterId: 'c', schemaVersion: 2 });
    const broken = Uint8Array.of(0xff);
    await store.txn(
      [],
      [
        { put: toKey('meta', 'cluster'), value: encodeRecord('meta', layout).bytes },
        { put: toKey('control', 'u'), value: broken },
      ],
    );
    await expect(open(await preload())).rejects.toThrow('the store has layout 2');
  });

  it('names a record that it cannot read', async () => {
    await fill();
    await store.txn([], [{ put: toKey('control', 'u'), value: Uint8Array.of(0xff) }]);
    await expect(open(await preload())).rejects.toThrow('the record at /control/u cannot be read');
  });
});
