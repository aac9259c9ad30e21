import { clone, create, fromBinary, isMessage, toBinary } from '@bufbuild/protobuf';
import { BinaryWriter, WireType } from '@bufbuild/protobuf/wire';
import fc from 'fast-check';
import { EndpointSchema, ReplicaStatus_Phase as Phase } from '@cloudless/api';
import { ReplicaRecordSchema } from '@cloudless/api/store';
import {
  copyReplica,
  createReplicaRecord,
  getNextOrderRevision,
  holdsResources,
  isLive,
} from '../index.js';
import { decodeRecord, encodeRecord } from './records.js';
import { listReplicaValues } from './replicas.js';

describe('copyReplica', () => {
  const replica = create(ReplicaRecordSchema, {
    id: 'u-1',
    uid: 'u',
    restarts: 2,
    lastExitCode: 7,
    createdAt: { seconds: 5n },
  });

  it('applies the changes and leaves the original as it is', () => {
    const before = structuredClone(withoutType(replica));
    const copy = copyReplica(replica, { restarts: 3, phase: Phase.RUNNING });
    expect(copy).toStrictEqual(
      create(ReplicaRecordSchema, { ...withoutType(replica), restarts: 3, phase: Phase.RUNNING }),
    );
    expect(withoutType(replica)).toStrictEqual(before);
  });

  it('gives the record that the general copy of protobuf-es gives, for any replica and changes', () => {
    const arbFields = fc.record(
      {
        id: fc.string(),
        sequence: fc.bigInt({ min: 0n, max: 2n ** 63n - 1n }),
        nodeId: fc.option(fc.string(), { nil: undefined }),
        ready: fc.option(fc.boolean(), { nil: undefined }),
        lastExitCode: fc.option(fc.integer({ min: 0, max: 255 }), { nil: undefined }),
        readySince: fc.option(fc.record({ seconds: fc.bigInt({ min: 0n, max: 9n }) }), {
          nil: undefined,
        }),
        endpoints: fc.array(fc.record({ portName: fc.string(), port: fc.nat(65_535) })),
        lastLines: fc.option(fc.array(fc.string()), { nil: undefined }),
        imagePull: fc.option(fc.record({ reason: fc.string() }), { nil: undefined }),
        nextStartAt: fc.option(fc.record({ seconds: fc.bigInt({ min: 0n, max: 9n }) }), {
          nil: undefined,
        }),
        failedStarts: fc.option(fc.nat(), { nil: undefined }),
      },
      { requiredKeys: [] },
    );
    fc.assert(
      fc.property(arbFields, arbFields, (fields, changes) => {
        const original = create(ReplicaRecordSchema, fields as never);
        const expected = create(ReplicaRecordSchema, {
          ...withoutType(clone(ReplicaRecordSchema, original)),
          ...changes,
        } as never);
        expect(createReplicaRecord(fields as never)).toStrictEqual(original);
        const copy = copyReplica(original, changes as never);
        expect(copy).toStrictEqual(expected);
        expect(isMessage(copy, ReplicaRecordSchema)).toBe(true);
        const decoded = fromBinary(ReplicaRecordSchema, toBinary(ReplicaRecordSchema, copy));
        expect(Object.keys(copy)).toEqual(Object.keys(decoded));
        const { bytes } = encodeRecord('replica', copy);
        expect(Buffer.from(bytes).equals(toBinary(ReplicaRecordSchema, copy))).toBe(true);
        expect(decodeRecord('replica', 'x', bytes)).toStrictEqual(decoded);
      }),
    );
  });

  it('converts plain objects in the changes to Protobuf messages, so that the copy can be encoded', () => {
    const copy = copyReplica(replica, {
      endpoints: [{ portName: 'http', port: 80 }],
      readySince: { seconds: 8n },
    });
    expect(copy.endpoints[0]).toEqual(create(EndpointSchema, { portName: 'http', port: 80 }));
    const stored = fromBinary(ReplicaRecordSchema, toBinary(ReplicaRecordSchema, copy));
    expect(stored).toMatchObject({
      endpoints: [{ portName: 'http', ip: '', port: 80 }],
      readySince: { seconds: 8n, nanos: 0 },
    });
  });

  it('shares empty lists between replicas', () => {
    const one = createReplicaRecord({ endpoints: [], lastLines: [] });
    const other = copyReplica(replica, { endpoints: [], earlierContainerIds: [], lastLines: [] });
    expect(other.endpoints).toBe(one.endpoints);
    expect(other.earlierContainerIds).toBe(one.earlierContainerIds);
    expect(other.lastLines).toBe(one.lastLines);
    expect(copyReplica(other, { endpoints: [{ port: 80 }] }).endpoints).toHaveLength(1);
    expect(one.endpoints).toHaveLength(0);
  });

  it('keeps fields that a newer version wrote', () => {
    const newer = fromBinary(
      ReplicaRecordSchema,
      new BinaryWriter().tag(999, WireType.Varint).uint32(1).finish(),
    );
    expect(copyReplica(newer, { restarts: 1 }).$unknown).toHaveLength(1);
  });
});

function withoutType({ $typeName: _name, ...fields }: ReturnType<typeof copyReplica>) {
  return fields;
}

describe('listReplicaValues', () => {
  it('lists the values of all fields in the order of their numbers', () => {
    const { fields } = ReplicaRecordSchema;
    const replica = Object.fromEntries(fields.map(({ localName }) => [localName, localName]));
    const values: unknown[] = [];
    listReplicaValues(replica as never, values);
    const byNumber = [...fields].sort((a, b) => a.number - b.number);
    expect(values).toEqual(byNumber.map(({ localName }) => localName));
  });
});

describe('getNextOrderRevision', () => {
  it.each([
    { name: 'the revision of the view, which is newer', revision: 9n, before: 7n, expected: 9n },
    {
      name: 'a newer revision when no commit followed the creation of the replica',
      ...{ revision: 7n, before: 7n, expected: 8n },
    },
  ])('returns $name', ({ revision, before, expected }) => {
    expect(getNextOrderRevision({ revision }, { orderRevision: before })).toBe(expected);
  });
});

describe('isLive and holdsResources', () => {
  it.each(
    [
      { phase: Phase.PENDING, live: true },
      { phase: Phase.ASSIGNED, live: true },
      { phase: Phase.STARTING, live: true },
      { phase: Phase.RUNNING, live: true },
      { phase: Phase.STOPPING, live: true },
      { phase: Phase.STOPPED, live: false },
      { phase: Phase.FAILED, live: false },
      { phase: Phase.SUCCEEDED, live: false },
    ].map((row) => ({ ...row, name: Phase[row.phase] })),
  )(
    'return $live in phase $name, and holdsResources false when the replica has no node or is lost',
    ({ phase, live }) => {
      expect(isLive({ phase })).toBe(live);
      expect(holdsResources({ phase, nodeId: 'n', lost: false })).toBe(live);
      expect(holdsResources({ phase, nodeId: 'n', lost: true })).toBe(false);
      expect(holdsResources({ phase, nodeId: '', lost: false })).toBe(false);
    },
  );
});
