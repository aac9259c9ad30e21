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
 * Each report writes a replica, an event and the readiness guard of a workload. The rest of the 100
 * writes is for suppressed events.
 */
const MAX_REPORTS_PER_COMMIT = 28;
/**
 * Characters of a pull failure that are stored. The limit exists because an agent may report any
 * text.
 */
const MAX_REASON = 1_000;
/**
 * Above this number of writes no further report is added: a replica, a readiness guard, an event of
 * the replica and an event of its image would exceed 100.
 */
const MAX_WRITES_BEFORE_REPORT = 96;
/** Suppressed events in one commit; they fit beside the reports. */
const MAX_LATE_EVENTS = 15;

/**
 * Writes the reports of agents into the records of their replicas. Only changes are written, and
 * reports that arrive during a commit are merged. A repeated or outdated report changes nothing.
 */
export class ReplicaReportQueue {
  private readonly waiting = new Map<string, Map<string, ReplicaReport>>();
  /** Nodes with a commit in progress. */
  private readonly writing = new Set<string>();
  private readonly waiters = new Map<string, (() => void)[]>();
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
      concurrency: 64,
    });
  }

  /**
   * Adds a report, which is written soon. A newer report of the same replica replaces a waiting
   * one.
   */
  enqueue(nodeId: string, report: ReplicaReport): void {
    this.reportCount.add();
    const reports = this.waiting.get(nodeId) ?? new Map<string, ReplicaReport>();
    reports.set(report.replicaId, report);
    this.waiting.set(nodeId, reports);
    this.queue.wake(nodeId);
  }

  /** Resolves when every report of the node that was enqueued so far is written. */
  flushed(nodeId: string): Promise<void> {
    if (!this.waiting.has(nodeId) && !this.writing.has(nodeId)) return Promise.resolve();
    return new Promise((resolve) =>
      this.waiters.set(nodeId, [...(this.waiters.get(nodeId) ?? []), resolve]),
    );
  }

  close(): Promise<void> {
    return this.queue.stop();
  }

  private async writeAndNotify(nodeId: string): Promise<WorkResult> {
    this.writing.add(nodeId);
    try {
      return await this.write(nodeId);
    } finally {
      this.writing.delete(nodeId);
      if (!this.waiting.has(nodeId)) {
        for (const resolve of this.waiters.get(nodeId) ?? []) resolve();
        this.waiters.delete(nodeId);
      }
    }
  }

  /** The remaining work of a node after a pass that wrote nothing. */
  private getRemainingWork(nodeId: string): WorkResult {
    if (this.waiting.has(nodeId)) return { kind: 'again' };
    const delayMs = this.eventThrottle.getNextDueMs(nodeId);
    return delayMs === undefined ? { kind: 'done' } : { kind: 'after', delayMs };
  }

  private async write(nodeId: string): Promise<WorkResult> {
    const { state, clock } = this.deps;
    const reports = this.waiting.get(nodeId) ?? new Map<string, ReplicaReport>();
    const view = state.view();
    const transaction = state.transaction();
    const late = this.eventThrottle.takeDue(nodeId, MAX_LATE_EVENTS);
    for (const event of late) {
      if (view.replica(event.replicaId ?? '') !== undefined) transaction.event(event);
    }
    const taken: ReplicaReport[] = [];
    for (const report of [...reports.values()].slice(0, MAX_REPORTS_PER_COMMIT)) {
      if (transaction.size > MAX_WRITES_BEFORE_REPORT) break;
      reports.delete(report.replicaId);
      taken.push(report);
      const stored = view.replica(report.replicaId);
      if (stored === undefined || stored.value.nodeId !== nodeId) continue;
      const isNewest = report.orderRevision >= state.toOrderRevision(stored.value.orderRevision);
      const next = mergeReport(stored.value, report, clock.wallTime(), isNewest);
      if (equals(ReplicaRecordSchema, stored.value, next)) continue;
      transaction.updateReplica(stored, next);
      let before: EventInit | undefined;
      for (const event of createEvents(stored.value, next, view.workload(next.uid)?.value)) {
        const told = this.eventThrottle.admit(nodeId, event);
        if (told === undefined) continue;
        before = { ...told, causedBy: before ?? findCause(view, told) };
        transaction.event(before);
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
      this.eventThrottle.requeue(nodeId, late);
      const newer = this.waiting.get(nodeId) ?? new Map<string, ReplicaReport>();
      this.waiting.set(
        nodeId,
        new Map([...taken.map((report) => [report.replicaId, report] as const), ...newer]),
      );
      if (reason instanceof LeadershipLostError) return { kind: 'done' };
      if (errorKindOf(reason) !== 'conflict') throw reason;
      return { kind: 'again' };
    }
  }
}

/**
 * Returns the latest event of the replica as the cause of a new one. A restart, a readiness loss
 * and a failed pull happen by themselves and have no cause.
 */
function findCause(view: ClusterView, { reason, replicaId = '' }: EventInit) {
  if (reason === 'ReplicaRestarted' || reason === 'ReplicaNotReady' || reason === 'ImagePullFailed')
    return undefined;
  const last = view.lastEventOfReplica(replicaId);
  return last?.reason === reason ? undefined : last;
}

/**
 * Creates reports for replicas that the complete inventory of the agent does not contain although
 * the records assign them to the node: stopped when a stop was ordered, otherwise failed.
 */
export function createMissingReports(
  view: ClusterView,
  nodeId: string,
  known: ReadonlySet<string>,
): readonly ReplicaReport[] {
  return [...view.replicasOn(nodeId)].flatMap(({ value }) => {
    if (known.has(value.id)) return [];
    const stopping = !value.desiredRunning;
    const forgotten = value.desiredRunning && isLive(value) && value.phase >= Phase.STARTING;
    if (!stopping && !forgotten) return [];
    return create(ReplicaReportSchema, {
      replicaId: value.id,
      workloadUid: value.uid,
      phase: stopping ? Phase.STOPPED : Phase.FAILED,
      reason: stopping ? '' : `node ${nodeId} no longer has the replica`,
      containerId: value.containerId,
    });
  });
}

/**
 * Merges a report into the record of its replica. A phase never goes back. A replica with a stop
 * order counts as stopped however it ended.
 * @param isNewest - The agent has the newest order of the replica.
 */
export function mergeReport(
  record: ReplicaRecord,
  report: ReplicaReport,
  wallTimeMs: number,
  isNewest: boolean,
): ReplicaRecord {
  const hasEnded = report.phase > Phase.STOPPING;
  // The end of a lost replica is the expected confirmation. Any other replica that has ended does
  // not change.
  if (record.lost || !isLive(record)) {
    return record.lost && hasEnded
      ? copyReplica(record, { phase: Phase.STOPPED, ready: false })
      : record;
  }
  const stopped = hasEnded && !record.desiredRunning;
  const ready = report.ready && !hasEnded;
  const next = copyReplica(record, {
    phase: stopped ? Phase.STOPPED : report.phase > record.phase ? report.phase : record.phase,
    ready,
    reason: report.reason,
    containerId: report.containerId,
    restarts: Math.max(record.restarts, report.restarts),
    endpoints: report.endpoints,
    earlierContainerIds: report.earlierContainerIds,
  });
  if (report.container !== undefined) next.container = report.container;
  if (report.lastExitCode !== undefined) next.lastExitCode = report.lastExitCode;
  if (isNewest) next.stopAfterUnconfirmed = false;
  if (report.lastEndReason !== '') next.lastEndReason = report.lastEndReason;
  if (report.lastLines.length > 0 || hasFailedAgain(record, report))
    next.lastLines = toLastLines(report.lastLines);
  if (report.imagePull !== undefined) next.imagePull = truncateReason(report.imagePull);
  // An agent that was restarted has no pull in progress.
  else if (next.imagePull?.phase === PullPhase.PULLING) delete next.imagePull;
  const becameReady = ready && (!record.ready || record.containerId !== report.containerId);
  if (becameReady) next.readySince = timestampFromMs(wallTimeMs);
  else if (!ready) delete next.readySince;
  return next;
}

function truncateReason(pull: ImagePullStatus): ImagePullStatus {
  return pull.reason.length <= MAX_REASON
    ? pull
    : { ...pull, reason: `${pull.reason.slice(0, MAX_REASON)}…` };
}

/**
 * True when a container failed without output. Other reports without lines come from an agent that
 * no longer has the lines, so the stored lines stay.
 */
function hasFailedAgain(record: ReplicaRecord, { restarts, phase }: ReplicaReport): boolean {
  return restarts > record.restarts || (restarts === record.restarts && phase === Phase.FAILED);
}

/**
 * Returns the events about a change in order: of the image, then of the replica. A failed start
 * because of the image has only the event of the image.
 */
function createEvents(
  before: ReplicaRecord,
  after: ReplicaRecord,
  workload: WorkloadRecord | undefined,
): readonly EventInit[] {
  const about: EventSubject = {
    category: Category.WORKLOAD,
    namespace: workload?.namespace ?? '',
    workload: workload?.name ?? '',
    replicaId: after.id,
    nodeId: after.nodeId,
  };
  const pull = createPullEvent(before.imagePull, after.imagePull, about);
  const own =
    pull?.reason === 'ImagePullFailed' && after.restarts > before.restarts
      ? undefined
      : createEvent(before, after, about);
  return [pull, own ?? createFinalFailureEvent(before, after, workload, about)].filter(
    (event) => event !== undefined,
  );
}

/**
 * The failure of a replica that is never replaced. Other failures are reported by the reconciler
 * that replaces the replica.
 */
function createFinalFailureEvent(
  before: ReplicaRecord,
  after: ReplicaRecord,
  workload: WorkloadRecord | undefined,
  about: EventSubject,
): EventInit | undefined {
  if (before.phase === after.phase || after.phase !== Phase.FAILED) return undefined;
  if (workload?.spec?.restart?.policy !== RestartMode.NEVER || workload.version !== after.version)
    return undefined;
  const message = `replica ${after.id} failed: ${after.reason}`;
  return { ...about, severity: Severity.WARNING, reason: 'ReplicaFailed', message };
}

function createEvent(
  before: ReplicaRecord,
  after: ReplicaRecord,
  about: EventSubject,
): EventInit | undefined {
  if (after.restarts > before.restarts && after.phase === Phase.STARTING) {
    const message = `replica ${after.id} could not be started: ${after.reason}`;
    return { ...about, severity: Severity.WARNING, reason: 'ReplicaRestarted', message };
  }
  if (after.restarts > before.restarts) {
    const code =
      after.lastExitCode === undefined ? after.reason : `exit code ${after.lastExitCode}`;
    const why = after.lastEndReason === '' ? code : after.lastEndReason;
    return {
      ...about,
      severity: Severity.WARNING,
      reason: 'ReplicaRestarted',
      message: `replica ${after.id} ended (${why}) and was restarted`,
    };
  }
  if (after.phase === before.phase) {
    if (!before.ready && after.ready) {
      return {
        ...about,
        severity: Severity.INFO,
        reason: 'ReplicaReady',
        message: `replica ${after.id} is ready`,
      };
    }
    if (before.ready && !after.ready && after.phase === Phase.RUNNING) {
      const message = `replica ${after.id} is not ready: ${after.reason}`;
      return { ...about, severity: Severity.WARNING, reason: 'ReplicaNotReady', message };
    }
    return undefined;
  }
  if (after.phase === Phase.SUCCEEDED) {
    return {
      ...about,
      severity: Severity.INFO,
      reason: 'ReplicaSucceeded',
      message: `replica ${after.id} ran to completion`,
    };
  }
  if (after.phase === Phase.STOPPED) {
    return {
      ...about,
      severity: Severity.INFO,
      reason: 'ReplicaStopped',
      message: `replica ${after.id} stopped: ${after.stopReason || after.reason}`,
    };
  }
  if (after.ready && !before.ready) {
    return {
      ...about,
      severity: Severity.INFO,
      reason: 'ReplicaReady',
      message: `replica ${after.id} is ready`,
    };
  }
  return undefined;
}
