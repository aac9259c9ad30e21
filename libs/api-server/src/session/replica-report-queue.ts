import { create, equals } from '@bufbuild/protobuf';
import { timestampFromMs } from '@bufbuild/protobuf/wkt';
import {
  Event_Category as Category,
  Event_Severity as Severity,
  ImagePullStatus_Phase as PullPhase,
  ReplicaReportSchema,
  ReplicaStatus_Phase as Phase,
  RestartPolicy_Policy as RestartMode,
  toLastLines,
  type ImagePullStatus,
  type ReplicaReport,
} from '@cloudless/api';
import { ReplicaRecordSchema, type ReplicaRecord, type WorkloadRecord } from '@cloudless/api/store';
import {
  CloudlessError,
  type Counter,
  noMeter,
  WorkQueue,
  logFailure,
  errorKindOf,
  type WorkResult,
} from '@cloudless/base';
import {
  LeadershipLostError,
  copyReplica,
  isLive,
  type ClusterView,
  type EventInit,
} from '@cloudless/cluster-state';
import type { ApiServerDeps } from '../ports.js';
import { EventThrottle } from './event-throttle.js';
import { createPullEvent, type EventSubject } from './pull-events.js';

/**
 * Each report writes at least a replica, an event and the readiness guard of a workload: 84 of the
 * 100 writes that a transaction allows. {@link MAX_LATE_EVENTS} of the rest are for suppressed
 * events.
 */
const MAX_REPORTS_PER_COMMIT = 28;
/**
 * Characters of the reason of a failed pull that are stored. Bounds the record, because an agent
 * may report any text.
 */
const MAX_REASON_LENGTH = 1_000;
/**
 * No report is added to a transaction with more writes than this: one report writes up to 4 records
 * (a replica, a readiness guard, an event of the replica, an event of its image), and a transaction
 * allows 100.
 */
const MAX_WRITES_BEFORE_REPORT = 96;
/** Suppressed events in one commit, beside {@link MAX_REPORTS_PER_COMMIT} reports. */
const MAX_LATE_EVENTS = 15;

/**
 * Writes the reports of agents into the records of their replicas, and emits the events about the
 * changes. Of several reports about one replica that wait for a commit, only the newest is written.
 * A repeated or outdated report changes nothing.
 */
export class ReplicaReportQueue {
  /** Reports that are not written yet, by node id and replica id. */
  private readonly waiting = new Map<string, Map<string, ReplicaReport>>();
  /** Nodes with a commit in progress. */
  private readonly writing = new Set<string>();
  /** Callbacks of {@link flushed}, by node id. Called with an error when reports stay unwritten. */
  private readonly waiters = new Map<string, ((error?: Error) => void)[]>();
  /** Why no further report is written; undefined while reports are written. */
  private endReason: Error | undefined;
  private readonly queue: WorkQueue<string>;
  private readonly eventThrottle: EventThrottle;
  private readonly reportCount: Counter;

  constructor(private readonly deps: ApiServerDeps) {
    this.eventThrottle = new EventThrottle(deps.clock);
    const { meter = noMeter } = deps;
    this.reportCount = meter.counter({
      name: 'cloudless_replica_reports_total',
      help: 'Reports of replicas that agents have sent.',
    });
    this.queue = new WorkQueue<string>({
      metrics: { meter, loop: 'reports' },
      clock: deps.clock,
      random: deps.random,
      handle: (nodeId) => this.writeAndNotify(nodeId),
      onError: (nodeId, reason) => logFailure(deps.log, 'report not written', reason, { nodeId }),
      backoff: { firstMs: 10, maxMs: 1_000, jitter: 0.2 },
      // Nodes whose reports are written at the same time.
      concurrency: 64,
    });
  }

  /** Adds a report, which replaces a waiting report about the same replica. Does not wait. */
  enqueue(nodeId: string, report: ReplicaReport): void {
    this.reportCount.add();
    const reports = this.waiting.get(nodeId) ?? new Map<string, ReplicaReport>();
    reports.set(report.replicaId, report);
    this.waiting.set(nodeId, reports);
    this.queue.wake(nodeId);
  }

  /**
   * Resolves when every report of the node that was enqueued so far is written.
   * @throws {@link LeadershipLostError} when the leadership is lost before that, kind `unavailable`
   *   when the queue is closed before that.
   */
  flushed(nodeId: string): Promise<void> {
    if (!this.waiting.has(nodeId) && !this.writing.has(nodeId)) return Promise.resolve();
    return new Promise((resolve, reject) => {
      if (this.endReason !== undefined) return reject(this.endReason);
      const onEnd = (error?: Error): void => (error === undefined ? resolve() : reject(error));
      this.waiters.set(nodeId, [...(this.waiters.get(nodeId) ?? []), onEnd]);
    });
  }

  /** Waits for commits in progress and writes no further reports. */
  async close(): Promise<void> {
    await this.queue.stop();
    this.failWaiters(new CloudlessError('unavailable', 'this coordinator is stopping'));
  }

  /** Ends every call of {@link flushed}, because no further report is written. */
  private failWaiters(reason: Error): void {
    this.endReason ??= reason;
    for (const onEnd of [...this.waiters.values()].flat()) onEnd(reason);
    this.waiters.clear();
  }

  private async writeAndNotify(nodeId: string): Promise<WorkResult> {
    this.writing.add(nodeId);
    try {
      return await this.write(nodeId);
    } finally {
      this.writing.delete(nodeId);
      if (!this.waiting.has(nodeId)) {
        for (const onEnd of this.waiters.get(nodeId) ?? []) onEnd();
        this.waiters.delete(nodeId);
      }
    }
  }

  /** Returns when to call {@link write} for a node again after a call that wrote nothing. */
  private getRemainingWork(nodeId: string): WorkResult {
    if (this.waiting.has(nodeId)) return { kind: 'again' };
    const delayMs = this.eventThrottle.getNextDueMs(nodeId);
    return delayMs === undefined ? { kind: 'done' } : { kind: 'after', delayMs };
  }

  /** Writes waiting reports and due events of a node in one commit. */
  private async write(nodeId: string): Promise<WorkResult> {
    const { state, clock } = this.deps;
    const reports = this.waiting.get(nodeId) ?? new Map<string, ReplicaReport>();
    const view = state.view();
    const transaction = state.transaction();
    const lateEvents = this.eventThrottle.takeDue(nodeId, MAX_LATE_EVENTS);
    for (const event of lateEvents) {
      if (view.replica(event.replicaId ?? '') !== undefined) transaction.event(event);
    }
    const taken: ReplicaReport[] = [];
    for (const report of [...reports.values()].slice(0, MAX_REPORTS_PER_COMMIT)) {
      if (transaction.size > MAX_WRITES_BEFORE_REPORT) break;
      reports.delete(report.replicaId);
      taken.push(report);
      const stored = view.replica(report.replicaId);
      if (stored === undefined || stored.value.nodeId !== nodeId) continue;
      const hasNewestOrder =
        report.orderRevision >= state.toOrderRevision(stored.value.orderRevision);
      const next = mergeReport(stored.value, report, clock.wallTime(), hasNewestOrder);
      if (equals(ReplicaRecordSchema, stored.value, next)) continue;
      transaction.updateReplica(stored, next);
      let previousEvent: EventInit | undefined;
      for (const event of createEvents(stored.value, next, view.workload(next.uid)?.value)) {
        const admitted = this.eventThrottle.admit(nodeId, event);
        if (admitted === undefined) continue;
        previousEvent = { ...admitted, causedBy: previousEvent ?? findCause(view, admitted) };
        transaction.event(previousEvent);
      }
    }
    if (reports.size === 0) this.waiting.delete(nodeId);
    if (transaction.size === 0) return this.getRemainingWork(nodeId);
    try {
      await state.commitObserved(transaction);
      return { kind: 'again' };
    } catch (reason) {
      // Nothing was written: enqueue the reports again, except those that a newer report has
      // replaced.
      this.eventThrottle.requeue(nodeId, lateEvents);
      const newer = this.waiting.get(nodeId) ?? new Map<string, ReplicaReport>();
      this.waiting.set(
        nodeId,
        new Map([...taken.map((report) => [report.replicaId, report] as const), ...newer]),
      );
      if (reason instanceof LeadershipLostError) {
        this.failWaiters(reason);
        return { kind: 'done' };
      }
      if (errorKindOf(reason) !== 'conflict') throw reason;
      return { kind: 'again' };
    }
  }
}

/**
 * Returns the cause of a new event: the latest event of the replica. Undefined for a restart, a
 * readiness loss and a failed pull, which no earlier event causes.
 */
function findCause(view: ClusterView, { reason, replicaId = '' }: EventInit) {
  if (reason === 'ReplicaRestarted' || reason === 'ReplicaNotReady' || reason === 'ImagePullFailed')
    return undefined;
  const last = view.lastEventOfReplica(replicaId);
  return last?.reason === reason ? undefined : last;
}

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
  });
  if (report.container !== undefined) next.container = report.container;
  if (report.lastExitCode !== undefined) next.lastExitCode = report.lastExitCode;
  if (hasNewestOrder) next.stopAfterUnconfirmed = false;
  if (report.lastEndReason !== '') next.lastEndReason = report.lastEndReason;
  if (report.lastLines.length > 0 || hasFailedAgain(record, report))
    next.lastLines = toLastLines(report.lastLines);
  if (report.imagePull !== undefined) next.imagePull = truncateReason(report.imagePull);
  // The report of an agent that was restarted contains no pull: the pull did not survive.
  else if (next.imagePull?.phase === PullPhase.PULLING) delete next.imagePull;
  const becameReady = ready && (!record.ready || record.containerId !== report.containerId);
  if (becameReady) next.readySince = timestampFromMs(wallTimeMs);
  else if (!ready) delete next.readySince;
  return next;
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

/**
 * Returns the events about a change of a replica record: first the event of its image, then the
 * event of the replica. A start that failed because of the image has only the event of the image.
 */
function createEvents(
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
  return [pull, replicaEvent ?? createFinalFailureEvent(before, after, workload, subject)].filter(
    (event) => event !== undefined,
  );
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
  if (after.restarts > before.restarts && after.phase === Phase.STARTING) {
    const message = `replica ${after.id} could not be started: ${after.reason}`;
    return { ...subject, severity: Severity.WARNING, reason: 'ReplicaRestarted', message };
  }
  if (after.restarts > before.restarts) {
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
    if (!before.ready && after.ready) {
      return {
        ...subject,
        severity: Severity.INFO,
        reason: 'ReplicaReady',
        message: `replica ${after.id} is ready`,
      };
    }
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
  if (after.ready && !before.ready) {
    return {
      ...subject,
      severity: Severity.INFO,
      reason: 'ReplicaReady',
      message: `replica ${after.id} is ready`,
    };
  }
  return undefined;
}
