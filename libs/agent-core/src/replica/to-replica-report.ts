import { create } from '@bufbuild/protobuf';
import { timestampFromMs } from '@bufbuild/protobuf/wkt';
import { EndpointSchema, ReplicaReportSchema, ReplicaStatus_Phase, type ReplicaReport } from '@cloudless/api';
import type { ReplicaPhase, ReplicaState } from './replica-state.js';

const PHASE: Record<ReplicaPhase, ReplicaStatus_Phase> = {
  starting: ReplicaStatus_Phase.STARTING,
  running: ReplicaStatus_Phase.RUNNING,
  stopping: ReplicaStatus_Phase.STOPPING,
  stopped: ReplicaStatus_Phase.STOPPED,
  failed: ReplicaStatus_Phase.FAILED,
  succeeded: ReplicaStatus_Phase.SUCCEEDED,
};

/**
 * What the coordinator is told. After a restart of the machine `order_revision` is 0 until the order was repeated: that is how the
 * coordinator sees that it must.
 */
export function toReplicaReport(state: ReplicaState): ReplicaReport {
  const { container, activity } = state;
  const runs =
    activity.kind === 'running' || activity.kind === 'killing' || activity.kind === 'leaving' || activity.kind === 'terminating';
  return create(ReplicaReportSchema, {
    replicaId: state.replicaId,
    workloadUid: state.workloadUid,
    orderRevision: activity.kind === 'unconfirmed' ? 0n : state.heldRevision,
    phase: PHASE[state.phase],
    ready: state.ready,
    reason: state.reason,
    containerId: container?.id ?? '',
    restarts: state.restarts,
    endpoints: runs ? (container?.endpoints ?? []).map((endpoint) => create(EndpointSchema, endpoint)) : [],
    ...(state.lastExitCode === undefined ? {} : { lastExitCode: state.lastExitCode }),
    lastEndReason: state.lastEndReason ?? '',
    lastLines: [...state.lastLines],
    ...(container === undefined ? {} : { startedAt: timestampFromMs(container.startedAtMs) }),
    earlierContainerIds: state.ended.filter((id) => id !== container?.id),
  });
}
