import { create, fromBinary, toBinary } from '@bufbuild/protobuf';
import { BinaryWriter, WireType } from '@bufbuild/protobuf/wire';
import { EndpointSchema, ReplicaStatus_Phase as Phase } from '@cloudless/api';
import { ReplicaRecordSchema } from '@cloudless/api/store';
import { copyReplica, holdsResources, isLive } from '../index.js';

describe('copyReplica', () => {
  const replica = create(ReplicaRecordSchema, {
    id: 'u-1',
    uid: 'u',
    restarts: 2,
    lastExitCode: 7,
    createdAt: { seconds: 5n },
  });

  it('applies the changes and shares nothing with the original', () => {
    const copy = copyReplica(replica, { restarts: 3, phase: Phase.RUNNING });
    expect(copy).toEqual(
      create(ReplicaRecordSchema, { ...withoutType(replica), restarts: 3, phase: Phase.RUNNING }),
    );
    copy.earlierContainerIds.push('c');
    if (copy.createdAt !== undefined) copy.createdAt.seconds = 9n;
    expect(replica).toMatchObject({
      restarts: 2,
      phase: Phase.PENDING,
      earlierContainerIds: [],
      createdAt: { seconds: 5n },
    });
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
