import { create, type MessageInitShape } from '@bufbuild/protobuf';
import { WireType } from '@bufbuild/protobuf/wire';
import fc from 'fast-check';
import { EventSchema } from '@cloudless/api';
import {
  NodeRecordSchema,
  ReplicaRecordSchema,
  SecretValueRecordSchema,
  WorkloadRecordSchema,
  type ReplicaRecord,
} from '@cloudless/api/store';
import { createSeededRandom, silentLog } from '@cloudless/base';
import { ManualClock, RecordingMeter } from '@cloudless/base/testing';
import { createMemoryStateStore, type StateStore } from '@cloudless/state-store';
import { copyReplica, openClusterState, type ClusterState } from '../index.js';
import { freezeRecords, listDifferences } from '../testing/index.js';
import type { IndexedView } from './view.js';

const clock = new ManualClock();
let store: StateStore;
let state: ClusterState;
let meter: RecordingMeter;

beforeEach(async () => {
  store = createMemoryStateStore({ clock });
  meter = new RecordingMeter();
  state = await openClusterState({
    ...{ store, clock, meter, holder: 'test', log: silentLog },
    random: createSeededRandom(1),
  });
  freezeRecords(state);
});
afterEach(async () => {
  await state.close();
  await store.close();
});

const isEqual = (shown: unknown, stored: unknown): boolean => {
  expect(shown).toStrictEqual(stored);
  return true;
};
const aReplica = (fields: MessageInitShape<typeof ReplicaRecordSchema> = {}): ReplicaRecord =>
  copyReplica(create(ReplicaRecordSchema, { id: 'u-1', uid: 'u', sequence: 1n }), fields);
const countDecoded = (): Promise<number> => meter.read('cloudless_state_records_decoded_total');
const readWrittenBytes = (): Promise<number> => meter.read('cloudless_state_written_bytes_total');

/** Text that UTF-8 cannot represent, or that decoders change, among usual text. */
const arbText = fc.oneof(fc.string(), fc.constantFrom('\uD800', '\uFEFFx', 'é'));
const arbReplica = fc
  .record({
    sequence: fc.bigInt({ min: 1n, max: 4n }),
    reason: arbText,
    restarts: fc.integer({ min: -5, max: 1_000 }),
    earlierContainerIds: fc.array(arbText, { maxLength: 3 }),
    isNewer: fc.boolean(),
  })
  .map(({ isNewer, ...fields }) => {
    const replica = aReplica(fields);
    const data = Uint8Array.of(1);
    if (isNewer) replica.$unknown = [{ no: 999, wireType: WireType.Varint, data }];
    return replica;
  });
const arbLabels = fc.dictionary(fc.oneof(arbText, fc.constant('__proto__')), arbText, {
  noNullPrototype: true,
  maxKeys: 3,
});

describe('A view', () => {
  it('shows own commits as a new process would read them, for any records', async () => {
    await fc.assert(
      fc.asyncProperty(fc.array(arbReplica, { maxLength: 4 }), arbLabels, async (puts, labels) => {
        const transaction = state
          .transaction()
          .put('node', 'n', create(NodeRecordSchema, { id: 'n', labels }))
          .put('workload', 'u', create(WorkloadRecordSchema, { uid: 'u', name: 'web' }))
          .event({ reason: 'Tested', message: 'a test' });
        for (const replica of puts) transaction.put('replica', `u/${replica.sequence}`, replica);
        await state.commit(transaction);
        expect(await listDifferences(state, store, isEqual)).toEqual([]);
      }),
      { numRuns: 50 },
    );
  });

  it('takes a committed record instead of decoding its bytes', async () => {
    const replica = aReplica();
    const before = await countDecoded();
    await state.commit(state.transaction().createReplica(replica).event({ reason: 'Tested' }));
    expect(state.view().replica('u-1')?.value).toBe(replica);
    expect(await countDecoded()).toBe(before);
  });

  it('takes the records of a transaction that also deletes records that do not exist', async () => {
    const before = await countDecoded();
    await state.commit(
      state
        .transaction()
        .delete('plan', 'unknown')
        .createReplica(aReplica())
        .delete('request', 'unknown')
        .createReplica(aReplica({ id: 'u-2', sequence: 2n })),
    );
    expect([...state.view().replicasOf('u')]).toHaveLength(2);
    expect(await countDecoded()).toBe(before);
  });

  it('holds and announces no committed record of a kind that views leave out', async () => {
    const changed: string[] = [];
    state.subscribe((changes) => changed.push(...changes.map(({ kind }) => kind)));
    const value = create(SecretValueRecordSchema, { ciphertext: Uint8Array.of(1) });
    await state.commit(
      state.transaction().put('secretvalue', 's/1', value).createReplica(aReplica()),
    );
    expect(state.view().replica('u-1')).toBeDefined();
    expect((state.view() as IndexedView).get('secretvalue', 's/1')).toBeUndefined();
    expect(changed).toEqual(['replica']);
  });

  it('decodes each record of another process once', async () => {
    const before = await countDecoded();
    const event = create(EventSchema, { id: 'e1' });
    const other = await openClusterState({
      ...{ store, clock, holder: 'other', log: silentLog },
      random: createSeededRandom(2),
    });
    await other.commit(other.transaction().put('event', event.id, event));
    await other.close();
    await state.waitForRevision(await store.revision());
    expect((await countDecoded()) - before).toBe(2); // the leader and the event
  });

  it('decodes a record whose bytes do not give it back', async () => {
    const replica = aReplica({ reason: 'cut in a surrogate pair \uD83D' });
    await state.commit(state.transaction().createReplica(replica));
    expect(state.view().replica('u-1')?.value.reason).toBe('cut in a surrogate pair \uFFFD');
  });

  it('writes the bytes of each record of a replica once', async () => {
    const bytesBefore = await readWrittenBytes();
    await state.commit(state.transaction().createReplica(aReplica()));
    const read = state.view().replica('u-1');
    if (read === undefined) throw new Error('it was committed above');
    await state.commit(
      state.transaction().updateReplica(read, copyReplica(read.value, { nodeId: 'n' })),
    );
    // id 5, uid 3, sequence 2 bytes; then 3 more for the node
    expect((await readWrittenBytes()) - bytesBefore).toBe(10 + 13);
  });
});

describe('freezeRecords', () => {
  it('refuses a change of a record in the view, at any depth', async () => {
    await state.commit(state.transaction().createReplica(aReplica({ endpoints: [] })));
    const shown = state.view().replica('u-1')?.value;
    expect(() => Object.assign(shown ?? {}, { ready: true })).toThrow(TypeError);
    expect(() => shown?.earlierContainerIds.push('c')).toThrow(TypeError);
  });
});
