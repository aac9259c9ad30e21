import { create, equals, type DescField, type Message } from '@bufbuild/protobuf';
import { timestampFromMs } from '@bufbuild/protobuf/wkt';
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
  copyReplica,
  isLive,
  shareContainer,
  shareTime,
  type ClusterView,
} from '@cloudless/cluster-state';

/**
 * Characters of the reason of a failed pull that are stored. Bounds the record, because an agent
 * may report any text.
 */
const MAX_REASON_LENGTH = 1_000;
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
 * @param hasNewestOrder - True when the agent has the newest order of the replica.
 * @returns A changed copy, or the record itself when the replica has ended already.
 */
export function mergeReport(
  record: ReplicaRecord,
  report: ReplicaReport,
  wallTimeMs: number,
  hasNewestOrder: boolean,
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
  const next = copyReplica(record, {
    phase: isStopped ? Phase.STOPPED : report.phase > record.phase ? report.phase : record.phase,
    ready,
    reason: report.reason,
    containerId: report.containerId,
    restarts: Math.max(record.restarts, report.restarts),
    endpoints: report.endpoints,
    earlierContainerIds: report.earlierContainerIds,
    ...toNextStartChange(record, hasEnded ? undefined : report.nextStartAt),
    ...toFailedStartsChange(record, report),
  });
  if (report.container !== undefined) next.container = shareContainer(report.container);
  if (report.lastExitCode !== undefined) next.lastExitCode = report.lastExitCode;
  if (hasNewestOrder) next.stopAfterUnconfirmed = false;
  if (report.lastEndReason !== '') next.lastEndReason = report.lastEndReason;
  if (report.lastLines.length > 0 || hasFailedAgain(record, report))
    next.lastLines = toLastLines(report.lastLines);
  if (report.imagePull !== undefined) next.imagePull = truncateReason(report.imagePull);
  // The report of an agent that was restarted contains no pull: the pull did not survive.
  else if (next.imagePull?.phase === PullPhase.PULLING) delete next.imagePull;
  const becameReady = ready && (!record.ready || record.containerId !== report.containerId);
  if (becameReady) next.readySince = shareTime(timestampFromMs(wallTimeMs));
  else if (!ready) delete next.readySince;
  return next;
}

/**
 * Returns the change of the next start. Empty when the record had none and gets none, as almost
 * always, because a change of this field makes the copy of a record slower.
 */
function toNextStartChange(
  { nextStartAt: before }: ReplicaRecord,
  after: ReplicaReport['nextStartAt'],
): Pick<Parameters<typeof copyReplica>[1], 'nextStartAt'> {
  if (after !== undefined) return { nextStartAt: shareTime(after) };
  return before === undefined ? {} : { nextStartAt: undefined };
}

/**
 * Returns the change of the failed starts, which never decrease and are never more than the
 * restarts that contain them, whatever an agent reports. Empty without a change, as {@link
 * toNextStartChange}.
 *
 * An agent that could not store its progress, or that was of an earlier version in between, has
 * counted too few. Its number replaces the stored number only when it is higher, as for restarts:
 * users see its failed starts as restarts until then, but no count goes back.
 */
function toFailedStartsChange(
  { failedStarts: before = 0, restarts }: ReplicaRecord,
  report: ReplicaReport,
): Pick<Parameters<typeof copyReplica>[1], 'failedStarts'> {
  const failedStarts = Math.min(report.failedStarts, Math.max(restarts, report.restarts));
  return failedStarts > before ? { failedStarts } : {};
}

/** Returns true when {@link mergeReport} has changed nothing. */
export function isSameRecord(before: ReplicaRecord, after: ReplicaRecord): boolean {
  if (before === after) return true;
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
