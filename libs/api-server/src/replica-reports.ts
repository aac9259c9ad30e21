import { create, equals } from '@bufbuild/protobuf';
import { timestampFromMs } from '@bufbuild/protobuf/wkt';
import {
  Event_Category as Category,
  Event_Severity as Severity,
  ReplicaReportSchema,
  ReplicaStatus_Phase as Phase,
  type ReplicaReport,
} from '@cloudless/api';
import { ReplicaRecordSchema, type ReplicaRecord } from '@cloudless/api/store';
import { WorkQueue, errorFields, errorKindOf, type WorkResult } from '@cloudless/base';
import { copyReplica, isLive, type ClusterView, type EventInit } from '@cloudless/cluster-state';
import type { ApiServerDeps } from './ports.js';

/** A replica and its event each; what is left of the 100 is for a second event. */
const MAX_REPORTS_PER_COMMIT = 40;

/**
 * Writes what agents report into the records of their replicas: only transitions, coalesced while a commit runs. Applying
 * a report twice, or an old one, changes nothing.
 */
export class ReplicaReports {
  private readonly waiting = new Map<string, Map<string, ReplicaReport>>();
  /** Nodes with a commit under way. */
  private readonly writing = new Set<string>();
  private readonly waiters = new Map<string, (() => void)[]>();
  private readonly queue: WorkQueue<string>;

  constructor(private readonly deps: ApiServerDeps) {
    this.queue = new WorkQueue<string>({
      clock: deps.clock,
      random: deps.random,
      handle: (nodeId) => this.writeAndTell(nodeId),
      onError: (nodeId, reason) => deps.log.error('report not written', { nodeId, ...errorFields(reason) }),
      backoff: { firstMs: 10, maxMs: 1_000, jitter: 0.2 },
      concurrency: 64,
    });
  }

  /** Takes a report in; it is written soon. */
  take(nodeId: string, report: ReplicaReport): void {
    const reports = this.waiting.get(nodeId) ?? new Map<string, ReplicaReport>();
    reports.set(report.replicaId, report);
    this.waiting.set(nodeId, reports);
    this.queue.wake(nodeId);
  }

  /** Resolves when every report of the node that was taken in so far is written. */
  written(nodeId: string): Promise<void> {
    if (!this.waiting.has(nodeId) && !this.writing.has(nodeId)) return Promise.resolve();
    return new Promise((resolve) => this.waiters.set(nodeId, [...(this.waiters.get(nodeId) ?? []), resolve]));
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

  private async write(nodeId: string): Promise<WorkResult> {
    const { state, clock } = this.deps;
    const reports = this.waiting.get(nodeId);
    if (reports === undefined) return { kind: 'done' };
    const view = state.view();
    const transaction = state.transaction();
    const taken: ReplicaReport[] = [];
    for (const report of [...reports.values()].slice(0, MAX_REPORTS_PER_COMMIT)) {
      reports.delete(report.replicaId);
      taken.push(report);
      const stored = view.replica(report.replicaId);
      if (stored === undefined || stored.value.nodeId !== nodeId) continue;
      const next = mergeReport(stored.value, report, clock.wallTime());
      if (equals(ReplicaRecordSchema, stored.value, next)) continue;
      transaction.updateReplica(stored, next);
      const event = eventOf(stored.value, next, view.workload(next.uid)?.value);
      if (event !== undefined) transaction.event(event);
    }
    if (reports.size === 0) this.waiting.delete(nodeId);
    const rest: WorkResult = { kind: this.waiting.has(nodeId) ? 'again' : 'done' };
    if (transaction.size === 0) return rest;
    try {
      await state.commit(transaction);
      return { kind: 'again' };
    } catch (reason) {
      // Not written: they wait again, unless the agent has said something newer meanwhile.
      const newer = this.waiting.get(nodeId) ?? new Map<string, ReplicaReport>();
      this.waiting.set(nodeId, new Map([...taken.map((report) => [report.replicaId, report] as const), ...newer]));
      if (errorKindOf(reason) !== 'conflict') throw reason;
      return { kind: state.isLeading ? 'again' : 'retry' };
    }
  }
}

/** The reports of replicas that the agent, by its whole inventory, does not have although it should. */
export function missingReports(view: ClusterView, nodeId: string, known: ReadonlySet<string>): readonly ReplicaReport[] {
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

/** The record with what the agent saw. Phases only go forward; a replica that was asked to stop has stopped however it ended. */
export function mergeReport(record: ReplicaRecord, report: ReplicaReport, wallTimeMs: number): ReplicaRecord {
  const hasEnded = report.phase > Phase.STOPPING;
  // The end of a lost one is the confirmation that is waited for; any other that has ended is history.
  if (record.lost || !isLive(record)) {
    return record.lost && hasEnded ? copyReplica(record, { phase: Phase.STOPPED, ready: false }) : record;
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
  if (report.lastExitCode !== undefined) next.lastExitCode = report.lastExitCode;
  const becameReady = ready && (!record.ready || record.containerId !== report.containerId);
  if (becameReady) next.readySince = timestampFromMs(wallTimeMs);
  else if (!ready) delete next.readySince;
  return next;
}

function eventOf(
  before: ReplicaRecord,
  after: ReplicaRecord,
  workload: { readonly namespace: string; readonly name: string } | undefined,
): EventInit | undefined {
  const about = {
    category: Category.WORKLOAD,
    namespace: workload?.namespace ?? '',
    workload: workload?.name ?? '',
    replicaId: after.id,
    nodeId: after.nodeId,
  };
  if (after.restarts > before.restarts) {
    const why = after.lastExitCode === undefined ? after.reason : `exit code ${after.lastExitCode}`;
    return {
      ...about,
      severity: Severity.WARNING,
      reason: 'ReplicaRestarted',
      message: `replica ${after.id} ended (${why}) and was restarted`,
    };
  }
  if (after.phase === before.phase) {
    if (!before.ready && after.ready) {
      return { ...about, severity: Severity.INFO, reason: 'ReplicaReady', message: `replica ${after.id} is ready` };
    }
    return undefined;
  }
  if (after.phase === Phase.SUCCEEDED) {
    return { ...about, severity: Severity.INFO, reason: 'ReplicaSucceeded', message: `replica ${after.id} ran to completion` };
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
    return { ...about, severity: Severity.INFO, reason: 'ReplicaReady', message: `replica ${after.id} is ready` };
  }
  return undefined;
}
