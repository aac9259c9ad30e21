import type { ReplicaReport } from '@cloudless/api';

/** A report that is not written yet. */
export interface QueuedReport {
  /** Identifies the node and the replica. */
  readonly key: string;
  readonly nodeId: string;
  readonly report: ReplicaReport;
  /** Number of the report, in the order of arrival. */
  readonly number: number;
}

/** A call of {@link ReportBacklog.whenWritten} that waits. */
interface Waiter {
  /** Numbers of the reports that must be written, or newer ones, by key. */
  readonly missing: Map<string, number>;
  readonly onEnd: (error?: Error) => void;
}

/**
 * The unwritten reports of one node: by key, the sequence number of the newest report about each
 * replica. Most nodes have one report at a time, which needs no map.
 */
class UnwrittenReports {
  private others: Map<string, number> | undefined;

  constructor(
    private firstKey: string | undefined,
    private firstNumber: number,
  ) {}

  get isEmpty(): boolean {
    return this.firstKey === undefined && (this.others?.size ?? 0) === 0;
  }

  set(key: string, number: number): void {
    if (this.firstKey === key) this.firstNumber = number;
    else (this.others ??= new Map<string, number>()).set(key, number);
  }

  /** Removes a report that is written, unless there is a newer one about its replica. */
  remove(key: string, number: number): void {
    if (this.firstKey === key) {
      if (this.firstNumber === number) this.firstKey = undefined;
    } else if (this.others?.get(key) === number) this.others.delete(key);
  }

  toMap(): Map<string, number> {
    const numbers = new Map(this.others);
    if (this.firstKey !== undefined) numbers.set(this.firstKey, this.firstNumber);
    return numbers;
  }
}

/**
 * The reports that are not written yet, in the order of arrival. Holds the newest report about each
 * replica only. While a report about a replica is being written, no other report about the replica
 * can be taken. A report that failed for a reason of its own can be separated from the others.
 */
export class ReportBacklog {
  /** By key, oldest first. */
  private readonly shared = new Map<string, QueuedReport>();
  /** Position in {@link shared}, so that no call passes over the same reports again. */
  private cursor = this.shared.values();
  private readonly separate = new Map<string, QueuedReport>();
  private readonly beingWritten = new Set<string>();
  /** By node id. */
  private readonly unwritten = new Map<string, UnwrittenReports>();
  private readonly waiters = new Map<string, Set<Waiter>>();
  private count = 0;

  /** Number of reports that {@link take} may return, now or after the end of a commit. */
  get size(): number {
    return this.shared.size;
  }

  /** Returns true while a report of the node about a replica waits, or is being written. */
  has(nodeId: string, replicaId: string): boolean {
    if (!this.unwritten.has(nodeId)) return false;
    const key = toKey(nodeId, replicaId);
    return this.shared.has(key) || this.separate.has(key) || this.beingWritten.has(key);
  }

  /**
   * Adds a report, which replaces a waiting report of the node about the same replica.
   * @returns The key, and true when the report waits apart from the others.
   */
  add(
    nodeId: string,
    report: ReplicaReport,
  ): { readonly key: string; readonly isSeparate: boolean } {
    const key = toKey(nodeId, report.replicaId);
    const number = (this.count += 1);
    const isSeparate = this.separate.size > 0 && this.separate.has(key);
    (isSeparate ? this.separate : this.shared).set(key, { key, nodeId, report, number });
    const ofNode = this.unwritten.get(nodeId);
    if (ofNode === undefined) this.unwritten.set(nodeId, new UnwrittenReports(key, number));
    else ofNode.set(key, number);
    return { key, isSeparate };
  }

  /** Takes the oldest report whose replica has no report that is being written. */
  take(): QueuedReport | undefined {
    return this.takeFromCursor() ?? this.takeFromStart();
  }

  /** Takes a report that waits apart from the others. */
  takeSeparate(key: string): QueuedReport | undefined {
    const queued = this.separate.get(key);
    if (queued === undefined || this.beingWritten.has(key)) return undefined;
    this.separate.delete(key);
    this.beingWritten.add(key);
    return queued;
  }

  /** Ends the commit of a taken report, which is written or needs no write. */
  finish({ key, nodeId, number }: QueuedReport): void {
    this.beingWritten.delete(key);
    const ofNode = this.unwritten.get(nodeId);
    ofNode?.remove(key, number);
    if (ofNode?.isEmpty === true) this.unwritten.delete(nodeId);
    if (this.waiters.size === 0) return;
    const waiters = this.waiters.get(nodeId);
    for (const waiter of waiters ?? []) {
      const needed = waiter.missing.get(key);
      if (needed !== undefined && needed <= number) waiter.missing.delete(key);
      if (waiter.missing.size > 0) continue;
      waiters?.delete(waiter);
      waiter.onEnd();
    }
    if (waiters?.size === 0) this.waiters.delete(nodeId);
  }

  /**
   * Returns a taken report that was not written. Without effect on the list when a newer report
   * about the replica waits.
   * @param separately - True to write the report without others.
   */
  putBack(queued: QueuedReport, separately: boolean): void {
    const { key } = queued;
    this.beingWritten.delete(key);
    if (separately) {
      this.separate.set(key, this.shared.get(key) ?? queued);
      this.shared.delete(key);
    } else if (!this.shared.has(key)) this.shared.set(key, queued);
  }

  /** Calls `onEnd` once every report of the node that was added so far is written. */
  whenWritten(nodeId: string, onEnd: (error?: Error) => void): void {
    const missing = this.unwritten.get(nodeId);
    if (missing === undefined) return onEnd();
    const waiters = this.waiters.get(nodeId) ?? new Set<Waiter>();
    this.waiters.set(nodeId, waiters.add({ missing: missing.toMap(), onEnd }));
  }

  /** Ends all waiting calls of {@link whenWritten} with an error. */
  failWaiters(reason: Error): void {
    const waiters = [...this.waiters.values()].flatMap((ofNode) => [...ofNode]);
    this.waiters.clear();
    for (const { onEnd } of waiters) onEnd(reason);
  }

  private takeFromCursor(): QueuedReport | undefined {
    for (let next = this.cursor.next(); next.done !== true; next = this.cursor.next()) {
      const { key } = next.value;
      if (this.beingWritten.has(key)) continue;
      this.shared.delete(key);
      this.beingWritten.add(key);
      return next.value;
    }
    return undefined;
  }

  private takeFromStart(): QueuedReport | undefined {
    this.cursor = this.shared.values();
    return this.takeFromCursor();
  }
}

const toKey = (nodeId: string, replicaId: string): string => `${nodeId} ${replicaId}`;
