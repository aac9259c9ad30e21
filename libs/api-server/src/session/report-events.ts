import {
  Event_Category as Category,
  Event_Severity as Severity,
  getNotStartedCause,
  ReplicaStatus_Phase as Phase,
  RestartPolicy_Policy as RestartMode,
} from '@cloudless/api';
import type { ReplicaRecord, WorkloadRecord } from '@cloudless/api/store';
import type { ClusterView, EventInit } from '@cloudless/cluster-state';
import { createPullEvent, type EventSubject } from './pull-events.js';

/**
 * Returns the events about a change of a replica record: first the event of its image, then the
 * event of the replica. A start that failed because of the image has only the event of the image.
 */
export function createReportEvents(
  before: ReplicaRecord,
  after: ReplicaRecord,
  workload: WorkloadRecord | undefined,
): readonly EventInit[] {
  const subject: EventSubject = {
    category: Category.WORKLOAD,
    namespace: workload?.namespace ?? '',
    workload: workload?.name ?? '',
    replicaId: after.id,
    nodeId: after.nodeId,
  };
  const pull = createPullEvent(before.imagePull, after.imagePull, subject);
  const replicaEvent =
    pull?.reason === 'ImagePullFailed' && after.restarts > before.restarts
      ? undefined
      : createEvent(before, after, subject);
  const event = replicaEvent ?? createFinalFailureEvent(before, after, workload, subject);
  if (pull === undefined) return event === undefined ? [] : [event];
  return event === undefined ? [pull] : [pull, event];
}

/**
 * Creates the event of a failed replica that is never replaced. The workload reconciler emits the
 * event of any other failed replica when it replaces the replica.
 */
function createFinalFailureEvent(
  before: ReplicaRecord,
  after: ReplicaRecord,
  workload: WorkloadRecord | undefined,
  subject: EventSubject,
): EventInit | undefined {
  if (before.phase === after.phase || after.phase !== Phase.FAILED) return undefined;
  if (workload?.spec?.restart?.policy !== RestartMode.NEVER || workload.version !== after.version)
    return undefined;
  const message = `replica ${after.id} failed: ${after.reason}`;
  return { ...subject, severity: Severity.WARNING, reason: 'ReplicaFailed', message };
}

/** Creates the event about a restart, a change of readiness or the end of a replica, if any. */
function createEvent(
  before: ReplicaRecord,
  after: ReplicaRecord,
  subject: EventSubject,
): EventInit | undefined {
  if (after.restarts > before.restarts) {
    const failedStart = findFailedStart(after);
    if (failedStart !== undefined) {
      const message = `replica ${after.id} could not be started: ${failedStart}`;
      return { ...subject, severity: Severity.WARNING, reason: 'ReplicaRestarted', message };
    }
    const code =
      after.lastExitCode === undefined ? after.reason : `exit code ${after.lastExitCode}`;
    const endReason = after.lastEndReason === '' ? code : after.lastEndReason;
    return {
      ...subject,
      severity: Severity.WARNING,
      reason: 'ReplicaRestarted',
      message: `replica ${after.id} ended (${endReason}) and was restarted`,
    };
  }
  if (after.phase === before.phase) {
    if (!before.ready && after.ready) return createReadyEvent(subject, after.id);
    if (before.ready && !after.ready && after.phase === Phase.RUNNING) {
      const message = `replica ${after.id} is not ready: ${after.reason}`;
      return { ...subject, severity: Severity.WARNING, reason: 'ReplicaNotReady', message };
    }
    return undefined;
  }
  if (after.phase === Phase.SUCCEEDED) {
    return {
      ...subject,
      severity: Severity.INFO,
      reason: 'ReplicaSucceeded',
      message: `replica ${after.id} ran to completion`,
    };
  }
  if (after.phase === Phase.STOPPED) {
    return {
      ...subject,
      severity: Severity.INFO,
      reason: 'ReplicaStopped',
      message: `replica ${after.id} stopped: ${after.stopReason || after.reason}`,
    };
  }
  return after.ready && !before.ready ? createReadyEvent(subject, after.id) : undefined;
}

/**
 * Returns why the last start of a replica failed; undefined when a container ended instead. Reads
 * no counts: an agent or a coordinator of an earlier version did not count failed starts apart.
 */
function findFailedStart({ phase, reason, lastEndReason }: ReplicaRecord): string | undefined {
  return getNotStartedCause(lastEndReason) ?? (phase === Phase.STARTING ? reason : undefined);
}

/** Lists the fields one by one, which is faster than a copy: a start has this event only. */
function createReadyEvent(subject: EventSubject, id: string): EventInit {
  const { category, namespace, workload, replicaId, nodeId } = subject;
  return {
    category,
    namespace,
    workload,
    replicaId,
    nodeId,
    severity: Severity.INFO,
    reason: 'ReplicaReady',
    message: `replica ${id} is ready`,
  };
}

/**
 * Returns the cause of a new event: the latest event of the replica. Undefined for a restart, a
 * readiness loss and a failed pull, which no earlier event causes.
 */
export function findCause(
  view: Pick<ClusterView, 'lastEventOfReplica'>,
  { reason, replicaId = '' }: EventInit,
): EventInit['causedBy'] {
  if (reason === 'ReplicaRestarted' || reason === 'ReplicaNotReady' || reason === 'ImagePullFailed')
    return undefined;
  const last = view.lastEventOfReplica(replicaId);
  return last?.reason === reason ? undefined : last;
}
