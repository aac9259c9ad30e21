import {
  Event_Category as Category,
  Event_Severity as Severity,
  getNotStartedCause,
  ReplicaStatus_Phase as Phase,
  RestartPolicy_Policy as RestartMode,
  type Event,
} from '@cloudless/api';
import type { ReplicaRecord, WorkloadRecord } from '@cloudless/api/store';
import type { ClusterView, EventInit } from '@cloudless/cluster-state';
import { createPullEvent, type EventSubject } from './pull-events.js';

/** The reason of the event that a replica is ready. */
export const READY = 'ReplicaReady';

const NO_EVENTS: readonly EventInit[] = [];

/**
 * Returns the events about a change of a replica record: first the event of its image, then the
 * event of the replica, but never that of {@link createReadyEvent}. A start that failed because of
 * the image has only the event of the image.
 */
export function createReportEvents(
  before: ReplicaRecord,
  after: ReplicaRecord,
  workload: WorkloadRecord | undefined,
): readonly EventInit[] {
  const isReady = becomesReady(before, after);
  if (isReady && before.imagePull === after.imagePull) return NO_EVENTS;
  const subject = createSubject(after, workload);
  const pull = createPullEvent(before.imagePull, after.imagePull, subject);
  const hasEventOfImage = pull?.reason === 'ImagePullFailed' && after.restarts > before.restarts;
  const replicaEvent = isReady || hasEventOfImage ? undefined : createEvent(before, after, subject);
  const event = replicaEvent ?? createFinalFailureEvent(before, after, workload, subject);
  if (pull === undefined) return event === undefined ? NO_EVENTS : [event];
  return event === undefined ? [pull] : [pull, event];
}

/**
 * Returns true when the event of the replica is that of {@link createReadyEvent}: not for a replica
 * that restarts and becomes ready in one report. Apart from the other events, because replicas that
 * become ready together share an event.
 */
export function becomesReady(before: ReplicaRecord, after: ReplicaRecord): boolean {
  return after.ready && !before.ready && after.restarts <= before.restarts;
}

/** The fields that all events about a replica share. */
export function createSubject(
  replica: ReplicaRecord,
  workload: WorkloadRecord | undefined,
): EventSubject {
  return {
    category: Category.WORKLOAD,
    namespace: workload?.namespace ?? '',
    workload: workload?.name ?? '',
    replicaId: replica.id,
    nodeId: replica.nodeId,
  };
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

/** Creates the event about a restart, a loss of readiness or the end of a replica, if any. */
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
  return undefined;
}

/**
 * Returns why the last start of a replica failed; undefined when a container ended instead. Reads
 * no counts: an agent or a coordinator of an earlier version did not count failed starts apart.
 */
function findFailedStart({ phase, reason, lastEndReason }: ReplicaRecord): string | undefined {
  return getNotStartedCause(lastEndReason) ?? (phase === Phase.STARTING ? reason : undefined);
}

/** Creates the event of a replica that has become ready. */
export function createReadyEvent(subject: EventSubject): EventInit {
  const message = `replica ${subject.replicaId} is ready`;
  return { ...subject, severity: Severity.INFO, reason: READY, message };
}

/**
 * Returns the cause of a new event: the latest event of the replica. Undefined for a restart, a
 * readiness loss and a failed pull, which no earlier event causes.
 */
export function findCause(
  view: Pick<ClusterView, 'lastEventOfReplica'>,
  reason: string,
  replicaId: string,
): Event | undefined {
  if (reason === 'ReplicaRestarted' || reason === 'ReplicaNotReady' || reason === 'ImagePullFailed')
    return undefined;
  const last = view.lastEventOfReplica(replicaId);
  return last?.reason === reason ? undefined : last;
}
