import { create, equals, type DescField, type Message } from '@bufbuild/protobuf';
import {
  ImagePullStatus_Phase as PullPhase,
  ReplicaReportSchema,
  ReplicaStatus_Phase as Phase,
  toLastLines,
  type ImagePullStatus,
  type ReplicaReport,
} from '@cloudless/api';
import { ReplicaRecordSchema, type ReplicaRecord } from '@cloudless/api/store';
import {
  compactList,
  copyReplica,
  isLive,
  shareContainer,
  shareTime,
  shareTimeFromMs,
  type ClusterView,
} from '@cloudless/cluster-state';

/**
 * Characters of the reason of a failed pull that are stored. Bounds the record, because an agent
 * may report any text.
 */
const MAX_REASON_LENGTH = 1_000;
/** For a copy whose fields are set afterwards, which takes less time than changes by field name. */
const NO_CHANGES = Object.freeze({});

/**
 * Creates reports about the end of replicas that the records assign to a node and that its agent no
 * longer has: STOPPED when a stop was ordered, FAILED when the replica was starting or running. A
 * replica that the agent may not have received yet (pending or assigned) gets no report.
 * @param reported - Ids of all replicas in the complete inventory of the agent.
 */
export function createMissingReports(
  view: ClusterView,
  nodeId: string,
  reported: ReadonlySet<string>,
): readonly ReplicaReport[] {
  return [...view.replicasOn(nodeId)].flatMap(({ value }) => {
    if (reported.has(value.id)) return [];
    const isStopOrdered = !value.desiredRunning;
    const isLost = value.desiredRunning && isLive(value) && value.phase >= Phase.STARTING;
    if (!isStopOrdered && !isLost) return [];
    return create(ReplicaReportSchema, {
      replicaId: value.id,
      workloadUid: value.uid,
      phase: isStopOrdered ? Phase.STOPPED : Phase.FAILED,
      reason: isStopOrdered ? '' : `node ${nodeId} no longer has the replica`,
      containerId: value.containerId,
    });
  });
}

/**
 * Merges a report into the record of its replica. A phase never goes back. A replica with a stop
 * order becomes STOPPED however it ended.
 * @param wallTimeMs - Current time, stored as `readySince` when the replica becomes ready.
 * @param confirmsStopLimit - True when the agent has the order with the `stopAfter` of the record, so
 *   that `stopAfterUnconfirmed` ends.
 * @returns A changed copy, or the record itself when the replica has ended already.
 */
export function mergeReport(
  record: ReplicaRecord,
  report: ReplicaReport,
  wallTimeMs: number,
  confirmsStopLimit: boolean,
): ReplicaRecord {
  const hasEnded = report.phase > Phase.STOPPING;
  // A lost replica changes once, when its agent confirms its end. A replica that has ended does not
  // change any more.
  if (record.lost || !isLive(record)) {
    return record.lost && hasEnded
      ? copyReplica(record, { phase: Phase.STOPPED, ready: false })
      : record;
  }
  const isStopped = hasEnded && !record.desiredRunning;
  const ready = report.ready && !hasEnded;
  const next = copyReplica(record, toOptionalChanges(record, report, { hasEnded, ready }));
  if (isStopped) next.phase = Phase.STOPPED;
  else if (report.phase > record.phase) next.phase = report.phase;
  next.ready = ready;
  next.reason = report.reason;
  next.containerId = report.containerId;
  next.restarts = Math.max(record.restarts, report.restarts);
  next.endpoints = compactList(report.endpoints);
  next.earlierContainerIds = compactList(report.earlierContainerIds);
  mergeFailedStarts(next, report);
  if (report.container !== undefined) next.container = shareContainer(report.container);
  if (report.lastExitCode !== undefined) next.lastExitCode = report.lastExitCode;
  if (confirmsStopLimit) next.stopAfterUnconfirmed = false;
  if (report.lastEndReason !== '') next.lastEndReason = report.lastEndReason;
  if (report.lastLines.length > 0 || hasFailedAgain(record, report))
    next.lastLines = toLastLines(report.lastLines);
  if (report.imagePull !== undefined) next.imagePull = truncateReason(report.imagePull);
  const becameReady = ready && (!record.ready || record.containerId !== report.containerId);
  if (becameReady) next.readySince = shareTimeFromMs(wallTimeMs);
  return next;
}

/**
 * Returns the optional fields that a report removes from a record, and the time of the next start.
 * Changes of the copy, because V8 stores a record from which a field was deleted as a hash table: in
 * 1,700 instead of 340 bytes.
 */
function toOptionalChanges(
  record: ReplicaRecord,
  report: ReplicaReport,
  { hasEnded, ready }: { readonly hasEnded: boolean; readonly ready: boolean },
): Parameters<typeof copyReplica>[1] {
  const nextStartAt = hasEnded ? undefined : report.nextStartAt;
  const changesNextStart = nextStartAt !== undefined || record.nextStartAt !== undefined;
  // The report of an agent that was restarted contains no pull: the pull did not survive.
  const hasLostPull =
    report.imagePull === undefined && record.imagePull?.phase === PullPhase.PULLING;
  const losesReadiness = !ready && record.readySince !== undefined;
  if (!changesNextStart && !hasLostPull && !losesReadiness) return NO_CHANGES;
  return {
    ...(changesNextStart ? { nextStartAt: nextStartAt && shareTime(nextStartAt) } : {}),
    ...(hasLostPull ? { imagePull: undefined } : {}),
    ...(losesReadiness ? { readySince: undefined } : {}),
  };
}

/**
 * Stores the failed starts, which never decrease and are never more than the restarts that contain
 * them, whatever an agent reports.
 *
 * An agent that could not store its progress, or that was of an earlier version in between, has
 * counted too few. Its number replaces the stored number only when it is higher, as for restarts:
 * users see its failed starts as restarts until then, but no count goes back.
 */
function mergeFailedStarts(next: ReplicaRecord, report: ReplicaReport): void {
  const failedStarts = Math.min(report.failedStarts, next.restarts);
  if (failedStarts > (next.failedStarts ?? 0)) next.failedStarts = failedStarts;
}

/** Returns true when {@link mergeReport} has changed nothing. */
export function isSameRecord(before: ReplicaRecord, after: ReplicaRecord): boolean {
  if (before === after) return true;
  // Almost every report of a start changes these two.
  if (before.phase !== after.phase || before.ready !== after.ready) return false;
  // Most fields are shared with the record. The generic comparison takes ten times as long.
  const [was, is] = [before, after] as readonly Readonly<Record<string, unknown>>[];
  return ReplicaRecordSchema.fields.every((field) =>
    isSameField(field, was?.[field.localName], is?.[field.localName]),
  );
}

function isSameField(field: DescField, before: unknown, after: unknown): boolean {
  if (before === after) return true;
  if (Array.isArray(before) && Array.isArray(after)) {
    if (before.length !== after.length) return false;
    return before.every((item, index) => isSameValue(field, item, after[index]));
  }
  return isSameValue(field, before, after);
}

function isSameValue({ message }: DescField, before: unknown, after: unknown): boolean {
  if (before === after) return true;
  if (message === undefined || before === undefined || after === undefined) return false;
  return equals(message, before as Message, after as Message);
}

function truncateReason(pull: ImagePullStatus): ImagePullStatus {
  return pull.reason.length <= MAX_REASON_LENGTH
    ? pull
    : { ...pull, reason: `${pull.reason.slice(0, MAX_REASON_LENGTH)}…` };
}

/**
 * Returns true when the report is about a further failure of a container. Its last lines replace
 * the stored ones, even when it wrote none. Any other report without lines comes from an agent that
 * no longer has the lines, so the stored lines stay.
 */
function hasFailedAgain(record: ReplicaRecord, { restarts, phase }: ReplicaReport): boolean {
  return restarts > record.restarts || (restarts === record.restarts && phase === Phase.FAILED);
}
