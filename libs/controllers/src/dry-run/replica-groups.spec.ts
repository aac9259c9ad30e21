import { create } from '@bufbuild/protobuf';
import { ReplicaStatus_Phase as Phase } from '@cloudless/api';
import { ReplicaRecordSchema, WorkloadRecordSchema } from '@cloudless/api/store';
import { aSpec } from '../testing/test-bed.js';
import { GROUPED_PER_SLICE, groupReplicas } from './replica-groups.js';

describe('groupReplicas', () => {
  it('pauses after each slice, and reads each replica once', () => {
    const count = 2 * GROUPED_PER_SLICE + 5;
    const replicas = Array.from({ length: count }, (_, index) =>
      create(ReplicaRecordSchema, {
        ...{ id: `web-${index}`, uid: 'web', sequence: BigInt(index), version: 1 },
        ...{ nodeId: 'node-1', phase: Phase.RUNNING, ready: true, desiredRunning: true },
      }),
    );
    let read = 0;
    const groups = groupReplicas(
      {
        view: { node: () => undefined, version: () => undefined, control: () => undefined },
        readiness: {
          readyForMs: () => {
            read += 1;
            return Number.POSITIVE_INFINITY;
          },
        },
        nowMs: 0,
      },
      create(WorkloadRecordSchema, { uid: 'web', version: 1, spec: aSpec({ replicas: count }) }),
      replicas,
    );
    const readBySlice: number[] = [];
    let next = groups.next();
    for (; next.done !== true; next = groups.next()) readBySlice.push(read);
    expect(readBySlice).toEqual([GROUPED_PER_SLICE, 2 * GROUPED_PER_SLICE]);
    expect(read).toBe(count);
    expect(next.value.existing).toBe(count);
    expect(next.value.available).toHaveLength(count);
  });
});
