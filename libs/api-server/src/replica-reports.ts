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
import { FlappingEvents } from './flapping-events.js';
import { pullEventOf, type About } from './pull-events.js';
import type { ApiServerDeps } from './ports.js';

/**
 * A replica, its event and its workload's evidence each; what is left of the 100 is for events that
 * are told late.
 */
const MAX_REPORTS_PER_COMMIT = 28;
/** Characters of a registry's words that are kept: an agent may say anything. */
const MAX_REASON = 1_000;
/**
 * A replica, its workload's evidence, an event of it and one of its image still fit into the 100.
 */
const ROOM_FOR_ONE = 96;
/** Events of replicas that flap, told late: beside the reports they fit into the rest. */
const MAX_LATE_EVENTS = 15;

/**
 * Writes what agents report into the records of their replicas: only transitions, coalesced while a
 * commit runs. Applying a report twice, or an old one, changes nothing.
 */
export class ReplicaReports {
  private readonly waiting = new Map<string, Map<string, ReplicaReport>>();
  /** Nodes with a commit under way. */
  private readonly writing = new Set<string>();
  private readonly waiters = new Map<string, (() => void)[]>();
  private readonly queue: WorkQueue<string>;
  private readonly flapping: FlappingEvents;
  private readonly taken: Counter;

  constructor(private readonly deps: ApiServerDeps) {
    this.flapping = new FlappingEvents(deps.clock);
    const { meter = noMeter } = deps;
    this.taken = meter.counter({
      name: 'cloudless_replica_reports_total',
      help: 'Reports of replicas that agents have sent.',
    });
    this.queue = new WorkQueue<string>({
      metrics: { meter, loop: 'reports' },
      clock: deps.clock,
      random: deps.random,
      handle: (nodeId) => this.writeAndTell(nodeId),
      onError: (nodeId, reason) => logFailure(deps.log, 'report not written', reason, { nodeId }),
      backoff: { firstMs: 10, maxMs: 1_000, jitter: 0.2 },
      concurrency: 64,
    });
  }

  /** Takes a report in; it is written soon. */
  take(nodeId: string, report: ReplicaReport): void {
    this.taken.add();
    const reports = this.waiting.get(nodeId) ?? new Map<string, ReplicaReport>();
    reports.set(report.replicaId, report);
    this.waiting.set(nodeId, reports);
    this.queue.wake(nodeId);
  }

  /** Resolves when every report of the node that was taken in so far is written. */
  written(nodeId: string): Promise<void> {
    if (!this.waiting.has(nodeId) && !this.writing.has(nodeId)) return Promise.resolve();
    return new Promise((resolve) =>
      this.waiters.set(nodeId, [...(this.waiters.get(nodeId) ?? []), resolve]),
    );
  }

  close(): Promise<void> {
    return this.queue.stop();
  }

  private async writeAndTell(nodeId: string): Promise<WorkResult> {
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

  /** What is left for a node when nothing is to be written now. */
  private rest(nodeId: string): WorkResult {
    if (this.waiting.has(nodeId)) return { kind: 'again' };
    const delayMs = this.flapping.nextDueMs(nodeId);
    return delayMs === undefined ? { kind: 'done' } : { kind: 'after', delayMs };
  }

  private async write(nodeId: string): Promise<WorkResult> {
    const { state, clock } = this.deps;
    const reports = this.waiting.get(nodeId) ?? new Map<string, ReplicaReport>();
    const view = state.view();
    const transaction = state.transaction();
    const late = this.flapping.due(nodeId, MAX_LATE_EVENTS);
    for (const event of late) {
      if (view.replica(event.replicaId ?? '') !== undefined) transaction.event(event);
    }
    const taken: ReplicaReport[] = [];
    for (const report of [...reports.values()].slice(0, MAX_REPORTS_PER_COMMIT)) {
      if (transaction.size > ROOM_FOR_ONE) break;
      reports.delete(report.replicaId);
      taken.push(report);
      const stored = view.replica(report.replicaId);
      if (stored === undefined || stored.value.nodeId !== nodeId) continue;
      const isNewest = report.orderRevision >= state.toOrderRevision(stored.value.orderRevision);
      const next = mergeReport(stored.value, report, clock.wallTime(), isNewest);
      if (equals(ReplicaRecordSchema, stored.value, next)) continue;
      transaction.updateReplica(stored, next);
      let before: EventInit | undefined;
      for (const event of eventsOf(stored.value, next, view.workload(next.uid)?.value)) {
        const told = this.flapping.admit(nodeId, event);
        if (told === undefined) continue;
        before = { ...told, causedBy: before ?? causeOf(view, told) };
        transaction.event(before);
      }
    }
    if (reports.size === 0) this.waiting.delete(nodeId);
    if (transaction.size === 0) return this.rest(nodeId);
    try {
      await state.write(transaction);
      return { kind: 'again' };
    } catch (reason) {
      // Not written: they wait again, unless the agent has said something newer meanwhile.
      this.flapping.putBack(nodeId, late);
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
 * What ends or flaps by itself has no cause here; anything else follows from what was last told of
 * the replica.
 */
function causeOf(view: ClusterView, { reason, replicaId = '' }: EventInit) {
  if (reason === 'ReplicaRestarted' || reason === 'ReplicaNotReady' || reason === 'ImagePullFailed')
    return undefined;
  const last = view.lastEventOfReplica(replicaId);
  return last?.reason === reason ? undefined : last;
}

/**
 * The reports of replicas that the agent, by its whole inventory, does not have although it should.
 */
export function missingReports(
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
      reason: stopping ? '' : `node ${nodeId} no longer knows the replica`,
      containerId: value.containerId,
    });
  });
}

/**
 * The record with what the agent saw. Phases only go forward; a replica that was asked to stop has
 * stopped however it ended.
 * @param isNewest - The agent holds the newest order of the replica.
 */
export function mergeReport(
  record: ReplicaRecord,
  report: ReplicaReport,
  wallTimeMs: number,
  isNewest: boolean,
): ReplicaRecord {
  const hasEnded = report.phase > Phase.STOPPING;
  // The end of a lost one is the confirmation that is waited for; any other that has ended is
  // history.
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
  if (report.imagePull !== undefined) next.imagePull = cutReason(report.imagePull);
  // an agent that was restarted has none under way
  else if (next.imagePull?.phase === PullPhase.PULLING) delete next.imagePull;
  const becameReady = ready && (!record.ready || record.containerId !== report.containerId);
  if (becameReady) next.readySince = timestampFromMs(wallTimeMs);
  else if (!ready) delete next.readySince;
  return next;
}

function cutReason(pull: ImagePullStatus): ImagePullStatus {
  return pull.reason.length <= MAX_REASON
    ? pull
    : { ...pull, reason: `${pull.reason.slice(0, MAX_REASON)}…` };
}

/**
 * A container failed without a word; any other report without lines is of an agent that does not
 * have them (any more).
 */
function hasFailedAgain(record: ReplicaRecord, { restarts, phase }: ReplicaReport): boolean {
  return restarts > record.restarts || (restarts === record.restarts && phase === Phase.FAILED);
}

/**
 * What is told of a change, in order: of its image, then of itself. A start that failed by its
 * image is told as that alone.
 */
function eventsOf(
  before: ReplicaRecord,
  after: ReplicaRecord,
  workload: WorkloadRecord | undefined,
): readonly EventInit[] {
  const about: About = {
    category: Category.WORKLOAD,
    namespace: workload?.namespace ?? '',
    workload: workload?.name ?? '',
    replicaId: after.id,
    nodeId: after.nodeId,
  };
  const pull = pullEventOf(before.imagePull, after.imagePull, about);
  const own =
    pull?.reason === 'ImagePullFailed' && after.restarts > before.restarts
      ? undefined
      : eventOf(before, after, about);
  return [pull, own ?? finalFailureOf(before, after, workload, about)].filter(
    (event) => event !== undefined,
  );
}

/**
 * The failure of a replica that is never replaced. Other failures are reported by the pass that
 * replaces the replica.
 */
function finalFailureOf(
  before: ReplicaRecord,
  after: ReplicaRecord,
  workload: WorkloadRecord | undefined,
  about: About,
): EventInit | undefined {
  if (before.phase === after.phase || after.phase !== Phase.FAILED) return undefined;
  if (workload?.spec?.restart?.policy !== RestartMode.NEVER || workload.version !== after.version)
    return undefined;
  const message = `replica ${after.id} failed: ${after.reason}`;
  return { ...about, severity: Severity.WARNING, reason: 'ReplicaFailed', message };
}

function eventOf(before: ReplicaRecord, after: ReplicaRecord, about: About): EventInit | undefined {
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
