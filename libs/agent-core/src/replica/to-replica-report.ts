import { create } from '@bufbuild/protobuf';
import { durationFromMs, timestampFromMs } from '@bufbuild/protobuf/wkt';
import { definedFields } from '@cloudless/base';
import {
  ContainerFactsSchema,
  EndpointSchema,
  ImagePullStatusSchema,
  ImagePullStatus_Phase,
  ReplicaReportSchema,
  ReplicaStatus_Phase,
  type ContainerFacts,
  type ImagePullStatus,
  type ReplicaReport,
} from '@cloudless/api';
import { toReportedState } from './order-storage.js';
import type { ReplicaPhase } from './replica-phase.js';
import {
  isUnconfirmed,
  type CurrentContainer,
  type ImagePull,
  type ReplicaState,
} from './replica-state.js';

const REPORT_PHASES: Record<ReplicaPhase, ReplicaStatus_Phase> = {
  starting: ReplicaStatus_Phase.STARTING,
  running: ReplicaStatus_Phase.RUNNING,
  stopping: ReplicaStatus_Phase.STOPPING,
  stopped: ReplicaStatus_Phase.STOPPED,
  failed: ReplicaStatus_Phase.FAILED,
  succeeded: ReplicaStatus_Phase.SUCCEEDED,
};

/**
 * Converts the state to a report for the coordinator. While the agent waits for an order to be
 * repeated, `order_revision` is 0, which makes the coordinator repeat the order. A stop order that
 * could not be stored is not acknowledged.
 */
export function toReplicaReport(current: ReplicaState): ReplicaReport {
  const state = toReportedState(current);
  const { container, activity } = state;
  const isRunning =
    activity.kind === 'running' ||
    activity.kind === 'killing' ||
    activity.kind === 'leaving' ||
    activity.kind === 'terminating';
  return create(ReplicaReportSchema, {
    replicaId: state.replicaId,
    workloadUid: state.workloadUid,
    orderRevision: isUnconfirmed(activity) ? 0n : state.heldRevision,
    phase: REPORT_PHASES[state.phase],
    ready: state.ready,
    reason: state.reason,
    containerId: container?.id ?? '',
    restarts: state.restarts,
    failedStarts: state.failedStarts,
    endpoints: isRunning
      ? (container?.endpoints ?? []).map((endpoint) => create(EndpointSchema, endpoint))
      : [],
    ...definedFields({ lastExitCode: state.lastExitCode }),
    lastEndReason: state.lastEndReason ?? '',
    lastLines: [...state.lastLines],
    ...(container === undefined
      ? {}
      : {
          startedAt: timestampFromMs(container.startedAtMs),
          container: toContainerFacts(container),
        }),
    ...(activity.kind !== 'backingOff' || activity.nextStartAtMs === undefined
      ? {}
      : { nextStartAt: timestampFromMs(activity.nextStartAtMs) }),
    ...(state.imagePull === undefined ? {} : { imagePull: toImagePullStatus(state.imagePull) }),
    earlierContainerIds: state.ended.filter((id) => id !== container?.id),
  });
}

function toContainerFacts({ startedAtMs, facts }: CurrentContainer): ContainerFacts {
  const { pid = 0, ip = '', runtime = '', runtimeId = '', imageDigest = '' } = facts ?? {};
  const startedAt = timestampFromMs(startedAtMs);
  return create(ContainerFactsSchema, { pid, startedAt, runtime, ip, runtimeId, imageDigest });
}

const PULL_PHASES: Record<ImagePull['phase'], ImagePullStatus_Phase> = {
  pulling: ImagePullStatus_Phase.PULLING,
  pulled: ImagePullStatus_Phase.PULLED,
  failed: ImagePullStatus_Phase.FAILED,
};

function toImagePullStatus(pull: ImagePull): ImagePullStatus {
  return create(ImagePullStatusSchema, {
    image: pull.image,
    phase: PULL_PHASES[pull.phase],
    startedAt: timestampFromMs(pull.startedAtMs),
    ...(pull.phase === 'pulling' ? {} : { took: durationFromMs(pull.tookMs) }),
    ...(pull.phase === 'pulled' ? { sizeBytes: BigInt(pull.sizeBytes ?? 0) } : {}),
    ...(pull.phase === 'failed' ? { reason: pull.reason } : {}),
  });
}
