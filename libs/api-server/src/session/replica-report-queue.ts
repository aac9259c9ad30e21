import type { ReplicaReport } from '@cloudless/api';
import type { ReplicaRecord, WorkloadRecord } from '@cloudless/api/store';
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
  toReplicaKeyId,
  type ClusterView,
  type EventInit,
  type Transaction,
} from '@cloudless/cluster-state';
import type { ApiServerDeps } from '../ports.js';
import { EventThrottle } from './event-throttle.js';
import { createMissingReports, isSameRecord, mergeReport } from './merge-report.js';
import { ReadyEvents } from './ready-events.js';
import { ReportBacklog, toReportKey, type QueuedReport } from './report-backlog.js';
import {
  READY,
  becomesReady,
  createReadyEvent,
  createReportEvents,
  createSubject,
  findCause,
} from './report-events.js';

/**
 * No report is added to a transaction with more writes than this: one report writes up to 4 records
 * (a replica, a readiness guard, an event of the replica, an event of its image), and a transaction
 * allows 100.
 */
const MAX_WRITES_BEFORE_REPORT = 96;
/**
 * Most reports that one pass looks at. Reports that change nothing need no write, so only this
 * limits the time for which a pass keeps the main loop.
 */
const MAX_REPORTS_PER_PASS = 256;
/**
 * Reports that fill a transaction: replicas that become ready together share an event. With so many
 * waiting, the next commit does not wait for the end of the commits in progress.
 */
const FULL_COMMIT = 90;
/**
 * Most commits in progress at the same time, beside those of separate reports. More than one only
 * helps when the store takes longer to confirm a commit than this process to prepare the next. A
 * store that groups commits writes at most this number times {@link FULL_COMMIT} reports at once:
 * with 8 lanes, reports waited ever longer while 1,000,000 replicas were created.
 */
const LANES = 16;
/** Most passes in progress at the same time for separate reports and for late events, together. */
const MAX_OTHER_PASSES = 48;
/** Suppressed events in one commit. A transaction allows 100 writes. */
const MAX_LATE_EVENTS = 90;

/**
 * A pass of the queue: `lane` writes waiting reports of any nodes in one commit, `separate` writes
 * the report of one replica, `events` commits the due events of one node.
 */
type PassKey = `lane ${number}` | `separate ${string}` | `events ${string}`;

/** Keys of the passes of all lanes, built once because every report wakes lanes. */
const LANE_PASSES = Array.from({ length: LANES }, (_, lane): PassKey => `lane ${lane}`);

/** A report that a pass has taken from the backlog for a commit. */
interface TakenReport {
  readonly queued: QueuedReport;
  /** The record as it is written; undefined for a report that could not be added to the commit. */
  readonly record: ReplicaRecord | undefined;
}

/** A commit of reports while it is prepared. */
interface ReportCommit {
  readonly transaction: Transaction;
  readonly view: ClusterView;
  readonly ready: ReadyEvents;
}

/**
 * Writes the reports of agents into the records of their replicas, and emits the events about the
 * changes. One commit takes all reports that arrived, from any node, while the previous commit was
 * in progress, up to the limits of a transaction. Of several reports about one replica that wait
 * for a commit, only the newest is written. A repeated or outdated report changes nothing. A report
 * whose commit fails for a reason of its own is written separately, so that the reports of other
 * replicas do not wait for it.
 */
export class ReplicaReportQueue {
  private readonly backlog = new ReportBacklog();
  /** Lanes that have put reports back because the store could not write anything. */
  private readonly failedLanes = new Set<number>();
  /** Why no further report is written; undefined while reports are written. */
  private endReason: Error | undefined;
  private readonly queue: WorkQueue<PassKey>;
  private readonly eventThrottle: EventThrottle;
  private readonly reportCount: Counter;

  constructor(private readonly deps: ApiServerDeps) {
    this.eventThrottle = new EventThrottle(deps.clock);
    const { meter = noMeter } = deps;
    this.reportCount = meter.counter({
      name: 'cloudless_replica_reports_total',
      help: 'Reports of replicas that agents have sent.',
    });
    this.queue = new WorkQueue<PassKey>({
      metrics: { meter, loop: 'reports' },
      clock: deps.clock,
      random: deps.random,
      handle: (key) => this.runPass(key),
      onError: (pass, reason) => logFailure(deps.log, 'report not written', reason, { pass }),
      backoff: { firstMs: 10, maxMs: 1_000, jitter: 0.2 },
      concurrency: LANES + MAX_OTHER_PASSES,
    });
  }

  /** Adds a report, which replaces a waiting report about the same replica. Does not wait. */
  enqueue(nodeId: string, report: ReplicaReport): void {
    this.reportCount.add();
    const queued = this.backlog.add(nodeId, report);
    if (queued.isSeparate) this.queue.wake(`separate ${toReportKey(queued)}`);
    else this.wakeLanes();
  }

  /**
   * Adds a report of an inventory, or only counts the report when it changes nothing. After a
   * restart of the coordinator, almost no report of an inventory changes a record.
   */
  enqueueFromInventory(nodeId: string, report: ReplicaReport): void {
    if (!this.changesNothing(nodeId, report)) return this.enqueue(nodeId, report);
    this.reportCount.add();
  }

  /**
   * Adds reports about the end of the replicas of a node that its complete inventory does not
   * contain.
   * @param reported - Ids of the replicas in the inventory.
   */
  enqueueMissing(nodeId: string, reported: ReadonlySet<string>): void {
    for (const report of createMissingReports(this.deps.state.view(), nodeId, reported))
      this.enqueue(nodeId, report);
  }

  /**
   * Resolves when every report of the node that was enqueued so far is written.
   * @throws {@link LeadershipLostError} when the leadership is lost before that, kind `unavailable`
   *   when the queue is closed before that.
   */
  flushed(nodeId: string): Promise<void> {
    if (this.endReason !== undefined) return Promise.reject(this.endReason);
    return new Promise((resolve, reject) => {
      this.backlog.whenWritten(nodeId, (error) =>
        error === undefined ? resolve() : reject(error),
      );
    });
  }

  /** Waits for commits in progress and writes no further reports. */
  async close(): Promise<void> {
    await this.queue.stop();
    this.end(new CloudlessError('unavailable', 'this coordinator is stopping'));
  }

  /** Ends every call of {@link flushed}, because no further report is written. */
  private end(reason: Error): void {
    this.endReason ??= reason;
    this.backlog.failWaiters(reason);
  }

  /** Wakes the first lane if a report waits, and one more lane for each full commit that waits. */
  private wakeLanes(): void {
    if (this.backlog.size === 0) return;
    let lanes = 1 + Math.floor(this.backlog.size / FULL_COMMIT);
    for (const pass of LANE_PASSES) {
      if (lanes === 0) return;
      lanes -= 1;
      this.queue.wake(pass);
    }
  }

  private runPass(pass: PassKey): Promise<WorkResult> {
    const space = pass.indexOf(' ');
    const [kind, subject] = [pass.slice(0, space), pass.slice(space + 1)];
    if (kind === 'separate') return this.writeSeparate(subject);
    if (kind === 'events') return this.writeLateEvents(subject);
    return this.writeShared(Number(subject));
  }

  /** Writes as many waiting reports as one commit can hold. */
  private async writeShared(lane: number): Promise<WorkResult> {
    // Lanes after the first only help with full commits.
    const isNeeded = lane === 0 || this.failedLanes.has(lane) || this.backlog.size >= FULL_COMMIT;
    if (!isNeeded) return { kind: 'done' };
    const { state } = this.deps;
    const view = state.view();
    const transaction = state.transaction();
    const ready = new ReadyEvents();
    const commit: ReportCommit = { transaction, view, ready };
    const taken: TakenReport[] = [];
    let looks = 0;
    while (
      looks < MAX_REPORTS_PER_PASS &&
      transaction.size + ready.size <= MAX_WRITES_BEFORE_REPORT
    ) {
      const queued = this.backlog.take();
      if (queued === undefined) break;
      looks += 1;
      try {
        const record = this.addReport(commit, queued);
        if (record === undefined) this.backlog.finish(queued);
        else taken.push({ queued, record });
      } catch (reason) {
        // One report that cannot be encoded must not keep those of other nodes.
        taken.push({ queued, record: undefined });
        return this.handleFailure(lane, taken, reason);
      }
    }
    // The reports that are left wait for the end of another commit about their replicas.
    if (looks === 0) return { kind: 'done' };
    if (taken.length === 0) return { kind: 'again' };
    ready.flush(transaction);
    try {
      await state.commitObserved(transaction);
    } catch (reason) {
      return this.handleFailure(lane, taken, reason);
    }
    this.failedLanes.delete(lane);
    for (const { queued } of taken) this.backlog.finish(queued);
    this.wakeLanes();
    return { kind: 'again' };
  }

  private async writeSeparate(key: string): Promise<WorkResult> {
    const queued = this.backlog.takeSeparate(key);
    if (queued === undefined) return { kind: 'done' };
    const { state } = this.deps;
    const transaction = state.transaction();
    const ready = new ReadyEvents();
    try {
      const record = this.addReport({ transaction, view: state.view(), ready }, queued);
      ready.flush(transaction);
      if (record !== undefined) await state.commitObserved(transaction);
    } catch (reason) {
      this.backlog.putBack(queued, true);
      if (reason instanceof LeadershipLostError) {
        this.end(reason);
        return { kind: 'done' };
      }
      if (errorKindOf(reason) !== 'conflict') throw reason;
      return { kind: 'again' };
    }
    this.backlog.finish(queued);
    // A report that arrived during the commit is not separate any more.
    this.wakeLanes();
    return { kind: 'done' };
  }

  /**
   * Puts the reports of a failed commit back. A report that failed for a reason of its own is
   * separated: the one that met a conflict, or all of them when the store does not tell which one
   * it refuses.
   * @throws `reason` when the store cannot write anything at the moment.
   */
  private handleFailure(lane: number, taken: readonly TakenReport[], reason: unknown): WorkResult {
    const kind = errorKindOf(reason);
    const isLost = reason instanceof LeadershipLostError;
    const concernsAll =
      isLost || kind === 'unavailable' || kind === 'deadline' || kind === 'exhausted';
    const culprit = concernsAll ? undefined : findCulprit(taken, reason);
    for (const { queued } of taken) {
      const separately = !concernsAll && (culprit === undefined || culprit === queued);
      this.backlog.putBack(queued, separately);
      if (separately) this.queue.wake(`separate ${toReportKey(queued)}`);
    }
    if (isLost) {
      this.end(reason);
      return { kind: 'done' };
    }
    if (concernsAll) {
      this.failedLanes.add(lane);
      throw reason;
    }
    this.wakeLanes();
    return { kind: 'again' };
  }

  /**
   * Returns true when the report would not change the record, or the node has no such replica.
   * Returns false while an older report about the replica is unwritten.
   */
  private changesNothing(nodeId: string, report: ReplicaReport): boolean {
    if (this.backlog.has(nodeId, report.replicaId)) return false;
    const stored = this.deps.state.view().replica(report.replicaId);
    if (stored?.value.nodeId !== nodeId) return true;
    return isSameRecord(stored.value, this.merge(stored.value, report));
  }

  private merge(record: ReplicaRecord, report: ReplicaReport): ReplicaRecord {
    const { state, clock } = this.deps;
    // Only the confirmation of a stop limit needs the comparison, which creates a big integer.
    const confirmsStopLimit =
      record.stopAfterUnconfirmed &&
      report.orderRevision >= state.toOrderRevision(record.orderRevision);
    return mergeReport(record, report, clock.wallTime(), confirmsStopLimit);
  }

  /**
   * Adds the changes that follow from a report to a transaction.
   * @returns The changed record; undefined when the report changes nothing.
   */
  private addReport(
    commit: ReportCommit,
    { nodeId, report }: QueuedReport,
  ): ReplicaRecord | undefined {
    const { transaction, view } = commit;
    const stored = view.replica(report.replicaId);
    if (stored?.value.nodeId !== nodeId) return undefined;
    const next = this.merge(stored.value, report);
    if (isSameRecord(stored.value, next)) return undefined;
    transaction.updateReplica(stored, next);
    this.addEvents(commit, stored.value, next);
    return next;
  }

  private addEvents(commit: ReportCommit, before: ReplicaRecord, after: ReplicaRecord): void {
    const workload = commit.view.workload(after.uid)?.value;
    let previous: EventInit | undefined;
    for (const event of createReportEvents(before, after, workload)) {
      const admitted = this.eventThrottle.admit(after.nodeId, event);
      previous = this.addEvent(commit, after, admitted, previous) ?? previous;
    }
    if (becomesReady(before, after)) this.addReadyEvent(commit, after, workload, previous);
  }

  /**
   * Adds the event of a replica that has become ready. Other replicas may share the event, unless
   * an event of the same commit is its cause, or the event stands for suppressed events.
   * @param previous - An event of the same commit about the replica, which causes one event only.
   */
  private addReadyEvent(
    commit: ReportCommit,
    replica: ReplicaRecord,
    workload: WorkloadRecord | undefined,
    previous: EventInit | undefined,
  ): void {
    const { id, nodeId } = replica;
    const throttled = this.eventThrottle.countEvent(nodeId, READY, id);
    if (throttled.passes && throttled.suppressed === undefined && previous === undefined)
      return commit.ready.add(replica, workload, findCause(commit.view, READY, id));
    const event = createReadyEvent(createSubject(replica, workload));
    const admitted = this.eventThrottle.emitOrKeep(nodeId, event, throttled);
    this.addEvent(commit, replica, admitted, previous);
  }

  /**
   * Adds an event to the transaction, with its cause.
   * @param event - Undefined for an event that the throttle has kept for later.
   * @param previous - The event before this one in the same transaction, which is its cause.
   * @returns The added event; undefined for a suppressed event.
   */
  private addEvent(
    { transaction, view }: ReportCommit,
    { id, nodeId }: ReplicaRecord,
    event: EventInit | undefined,
    previous: EventInit | undefined,
  ): EventInit | undefined {
    if (event === undefined) {
      this.queue.wake(`events ${nodeId}`);
      return undefined;
    }
    const added = { ...event, causedBy: previous ?? findCause(view, event.reason ?? '', id) };
    transaction.event(added);
    return added;
  }

  /** Commits suppressed events of a node that are due. */
  private async writeLateEvents(nodeId: string): Promise<WorkResult> {
    const { state } = this.deps;
    const view = state.view();
    const transaction = state.transaction();
    const events = this.eventThrottle.takeDue(nodeId, MAX_LATE_EVENTS);
    for (const event of events)
      if (view.replica(event.replicaId ?? '') !== undefined) transaction.event(event);
    if (transaction.size === 0) {
      this.eventThrottle.confirm(events);
      const delayMs = this.eventThrottle.getNextDueMs(nodeId);
      return delayMs === undefined ? { kind: 'done' } : { kind: 'after', delayMs };
    }
    try {
      await state.commitObserved(transaction);
      this.eventThrottle.confirm(events);
      return { kind: 'again' };
    } catch (reason) {
      this.eventThrottle.requeue(nodeId, events);
      if (reason instanceof LeadershipLostError) {
        this.end(reason);
        return { kind: 'done' };
      }
      if (errorKindOf(reason) !== 'conflict') throw reason;
      return { kind: 'again' };
    }
  }
}

/** Returns the report about the replica whose record a conflict names, if any. */
function findCulprit(taken: readonly TakenReport[], reason: unknown): QueuedReport | undefined {
  const { scope } = reason as { readonly scope?: unknown };
  if (typeof scope !== 'string') return undefined;
  return taken.find(
    ({ record }) =>
      record !== undefined && scope.endsWith(`/${toReplicaKeyId(record.uid, record.sequence)}`),
  )?.queued;
}
