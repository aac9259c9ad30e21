import { create } from '@bufbuild/protobuf';
import { timestampFromMs } from '@bufbuild/protobuf/wkt';
import { ReplicaStatus_Phase as Phase, RolloutStatus_Phase as RolloutPhase } from '@cloudless/api';
import {
  ControlRecordSchema,
  ReplicaRecordSchema,
  WorkloadRecordSchema,
} from '@cloudless/api/store';
import { decideEviction } from './evict-replicas.js';

const NOW_MS = 1_000_000;

/** Asks to move `web-3`, which is on `node-3`, after an earlier request for two replicas. */
function evictAfterEarlierRequest(earlierEndsInMs: number) {
  const workload = create(WorkloadRecordSchema, { uid: 'web', namespace: 'default', name: 'web' });
  const control = create(ControlRecordSchema, {
    uid: 'web',
    rolloutPhase: RolloutPhase.COMPLETED,
    eviction: {
      replicaIds: ['web-1', 'web-2'],
      nodeIds: ['node-1', 'node-2'],
      until: timestampFromMs(NOW_MS + earlierEndsInMs),
    },
  });
  // web-1 has left node-1 already.
  const running = ['web-2', 'web-3'].map((id) =>
    create(ReplicaRecordSchema, {
      ...{ id, uid: 'web', nodeId: `node-${id.slice(-1)}` },
      ...{ phase: Phase.RUNNING, desiredRunning: true },
    }),
  );
  const view = {
    replica: (id: string) => {
      const value = running.find((replica) => replica.id === id);
      return value === undefined ? undefined : { value, revision: 1n };
    },
  };
  return decideEviction(
    view,
    { replicaIds: ['web-3'] },
    { workload: { value: workload, revision: 1n }, control: { value: control, revision: 1n } },
    NOW_MS,
  ).change.eviction;
}

describe('decideEviction', () => {
  it('adds to the replicas and the left nodes of an earlier request that has not ended', () => {
    expect(evictAfterEarlierRequest(1)).toMatchObject({
      replicaIds: ['web-2', 'web-3'],
      nodeIds: ['node-1', 'node-2', 'node-3'],
      until: timestampFromMs(NOW_MS + 600_000),
    });
  });

  it('replaces an earlier request that has ended', () => {
    expect(evictAfterEarlierRequest(0)).toMatchObject({
      replicaIds: ['web-3'],
      nodeIds: ['node-3'],
    });
  });
});
