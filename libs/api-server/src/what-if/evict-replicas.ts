import { create } from '@bufbuild/protobuf';
import { timestampFromMs, timestampMs } from '@bufbuild/protobuf/wkt';
import { WorkloadSpec_Mode as Mode, isRolledOut, type EvictReplicasRequest } from '@cloudless/api';
import { EvictionRecordSchema, type ReplicaRecord } from '@cloudless/api/store';
import { CloudlessError } from '@cloudless/base';
import { holdsResources, type ClusterView } from '@cloudless/cluster-state';
import {
  formatWorkload,
  type RolloutRecords,
  type RolloutUpdate,
} from '../rollout/rollout-update.js';

/** Time after which replicas that could not be moved stay, milliseconds. */
const EVICTION_MS = 600_000;

/**
 * Decides to move replicas of a workload to other nodes.
 * @param nowMs - Wall-clock milliseconds.
 * @throws kind `notFound` for a replica that does not run; `precondition` while a rollout is in
 *   progress; `unimplemented` for a GLOBAL workload, whose replicas have one node each.
 */
export function decideEviction(
  view: Pick<ClusterView, 'replica'>,
  { replicaIds }: Pick<EvictReplicasRequest, 'replicaIds'>,
  { workload, control }: RolloutRecords,
  nowMs: number,
): RolloutUpdate {
  const { value: record } = workload;
  if (record.spec?.mode === Mode.GLOBAL)
    throw new CloudlessError(
      'unimplemented',
      `${formatWorkload(record)} has mode GLOBAL: each of its replicas belongs to one node; drain the node instead`,
    );
  if (!isRolledOut(control.value.rolloutPhase))
    throw new CloudlessError(
      'ROLLOUT_PHASE',
      `${formatWorkload(record)}: a rollout is in progress; move replicas when it has completed`,
    );
  for (const id of replicaIds) {
    const replica = view.replica(id)?.value;
    if (replica === undefined || replica.uid !== record.uid || !isRunning(replica))
      throw new CloudlessError(
        'notFound',
        `${formatWorkload(record)} has no running replica "${id}"`,
      );
  }
  const earlier = control.value.eviction;
  const isOpen = earlier?.until !== undefined && timestampMs(earlier.until) > nowMs;
  const leftEarlier = isOpen ? earlier.nodeIds : [];
  const left = replicaIds.flatMap((id) => view.replica(id)?.value.nodeId ?? []);
  const staying = (isOpen ? earlier.replicaIds : []).filter((id) => {
    const replica = view.replica(id)?.value;
    return replica !== undefined && isRunning(replica) && !replicaIds.includes(id);
  });
  const count = replicaIds.length;
  return {
    change: {
      eviction: create(EvictionRecordSchema, {
        replicaIds: [...staying, ...replicaIds],
        nodeIds: [...new Set([...leftEarlier, ...left])],
        until: timestampFromMs(nowMs + EVICTION_MS),
      }),
    },
    reason: 'ReplicasEvicting',
    description: '',
    message: `${count} ${count === 1 ? 'replica' : 'replicas'} of ${record.namespace}/${record.name} ${count === 1 ? 'moves' : 'move'} to other nodes`,
  };
}

function isRunning(replica: ReplicaRecord): boolean {
  return replica.desiredRunning && holdsResources(replica);
}
