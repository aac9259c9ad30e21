import type { ReplicaReport } from '@cloudless/api';
import { TransientMap } from '@cloudless/base';

/** A report that is not written yet. */
export interface QueuedReport {
  readonly nodeId: string;
  /** Can change until the report is taken. */
  readonly report: ReplicaReport;
  /** Number of the report, in the order of arrival. Can change until the report is taken. */
  readonly number: number;
  /** True when the report waits apart from the others. */
  readonly isSeparate: boolean;
}

/**
 * The reports about a replica have at most two entries: one for the waiting report, which a newer
 * report replaces in place, and one for the report that is being written.
 */
interface BacklogEntry extends QueuedReport {
  report: ReplicaReport;
  number: number;
  isSeparate: boolean;
  /** True while the report is being written. */
  isTaken: boolean;
  /** True while an earlier report about the replica is being written. */
  waitsForEarlier: boolean;
  /** True while the report is one of the {@link SharedReports}. */
  isShared: boolean;
}

/** A call of {@link ReportBacklog.whenWritten} that waits. */
interface Waiter {
  /** Numbers of the reports that must be written, or newer ones, by replica id. */
  readonly missing: Map<string, number>;
  readonly onEnd: (error?: Error) => void;
}

/**
 * The newest unwritten report about each replica of one node. Most nodes have one report at a time,
 * which needs no map.
 */
class NodeReports {
  private first: BacklogEntry | undefined;
  private others: TransientMap<string, BacklogEntry> | undefined;

  constructor(first: BacklogEntry) {
    this.first = first;
  }

  get isEmpty(): boolean {
    return this.first === undefined && (this.others?.size ?? 0) === 0;
  }

  get(replicaId: string): BacklogEntry | undefined {
    return this.first?.report.replicaId === replicaId ? this.first : this.others?.get(replicaId);
  }

  set(entry: BacklogEntry): void {
    const { replicaId } = entry.report;
    if (this.first?.report.replicaId === replicaId) this.first = entry;
    else (this.others ??= new TransientMap<string, BacklogEntry>()).set(replicaId, entry);
  }

  delete(entry: BacklogEntry): void {
    if (this.first === entry) this.first = undefined;
    else this.others?.delete(entry.report.replicaId);
  }

  /** Returns the numbers of the reports by replica id. */
  listNumbers(): Map<string, number> {
    const numbers = new Map<string, number>();
    for (const { report, number } of this.others?.values() ?? [])
      numbers.set(report.replicaId, number);
    if (this.first !== undefined) numbers.set(this.first.report.replicaId, this.first.number);
    return numbers;
  }
}

/**
 * {@link SharedReports} may keep this many empty places. Above that number, at most half of its
 * places are empty.
 */
const ALLOWED_EMPTY_PLACES = 1_024;

/**
 * The reports that wait for a shared commit, in the order in which they were added. In an array and
 * not in a `Set`, because every report is added and removed soon after, see {@link TransientMap}.
 */
class SharedReports {
  /**
   * In the order of {@link add}; a report that is put back is added at the end. The place of a
   * deleted report stays until {@link take} or {@link removeEmpty} reaches it. A report that is
   * added again before that has two places, of which the first one that is reached counts.
   */
  private places: (BacklogEntry | undefined)[] = [];
  /** Index at which {@link take} continues, so that no call passes over the same reports again. */
  private next = 0;
  /** Number of places before {@link next} that {@link take} has emptied. */
  private empty = 0;
  private count = 0;

  get size(): number {
    return this.count;
  }

  /** Has no effect while the report is in the list. */
  add(entry: BacklogEntry): void {
    if (entry.isShared) return;
    entry.isShared = true;
    this.count += 1;
    this.places.push(entry);
  }

  delete(entry: BacklogEntry): void {
    if (!entry.isShared) return;
    entry.isShared = false;
    this.count -= 1;
  }

  /**
   * Removes and returns the next report, after the last one taken, that does not wait for an
   * earlier one. Starts again at the first report as {@link ReportBacklog.take} does.
   */
  take(): BacklogEntry | undefined {
    const startsBehind = this.next > 0;
    let entry = this.takeNext();
    if (entry === undefined && startsBehind) {
      this.restart();
      entry = this.takeNext();
    }
    if (entry === undefined) this.restart();
    return entry;
  }

  private takeNext(): BacklogEntry | undefined {
    while (this.next < this.places.length) {
      const index = this.next;
      this.next += 1;
      const entry = this.places[index];
      const mustWait = entry?.isShared === true && entry.waitsForEarlier;
      if (mustWait) continue;
      this.places[index] = undefined;
      this.empty += 1;
      if (entry?.isShared !== true) continue;
      this.delete(entry);
      if (this.empty > ALLOWED_EMPTY_PLACES && 2 * this.empty > this.places.length)
        this.removeEmpty();
      return entry;
    }
    return undefined;
  }

  private restart(): void {
    this.removeEmpty();
    this.next = 0;
  }

  /**
   * Removes the places before {@link next} that are empty or whose report was deleted; all places
   * when no report is left.
   */
  private removeEmpty(): void {
    if (this.count === 0) this.places = [];
    const passed = this.places.slice(0, this.next).filter((entry) => entry?.isShared === true);
    this.places = passed.concat(this.places.slice(this.next));
    this.next = passed.length;
    this.empty = 0;
  }
}

/**
 * The reports that are not written yet, in the order of arrival. Holds the newest report about each
 * replica only. While a report about a replica is being written, no other report about the replica
 * can be taken. A report that failed for a reason of its own can be separated from the others.
 */
export class ReportBacklog {
  private readonly shared = new SharedReports();
  /** The reports that wait apart from the others, by {@link toReportKey}. */
  private readonly separate = new Map<string, BacklogEntry>();
  /** By node id. */
  private readonly unwritten = new TransientMap<string, NodeReports>();
  private readonly waiters = new Map<string, Set<Waiter>>();
  private count = 0;

  /** Number of reports that {@link take} may return, now or after the end of a commit. */
  get size(): number {
    return this.shared.size;
  }

  /** Returns true while a report of the node about a replica waits, or is being written. */
  has(nodeId: string, replicaId: string): boolean {
    return this.unwritten.get(nodeId)?.get(replicaId) !== undefined;
  }

  /** Adds a report, which replaces a waiting report of the node about the same replica. */
  add(nodeId: string, report: ReplicaReport): QueuedReport {
    const number = (this.count += 1);
    const ofNode = this.unwritten.get(nodeId);
    const known = ofNode?.get(report.replicaId);
    if (known?.isTaken === false) {
      known.report = report;
      known.number = number;
      return known;
    }
    const entry: BacklogEntry = {
      nodeId,
      report,
      number,
      isSeparate: false,
      isTaken: false,
      waitsForEarlier: known !== undefined,
      isShared: false,
    };
    this.shared.add(entry);
    if (ofNode === undefined) this.unwritten.set(nodeId, new NodeReports(entry));
    else ofNode.set(entry);
    return entry;
  }

  /**
   * Takes the next report, after the last one taken, whose replica has no report that is being
   * written. When none is left there, starts again at the oldest report, in the same call. After a
   * call that returned undefined, the next call starts at the oldest report.
   */
  take(): QueuedReport | undefined {
    const entry = this.shared.take();
    if (entry !== undefined) entry.isTaken = true;
    return entry;
  }

  /**
   * Takes a report that waits apart from the others.
   * @param key - From {@link toReportKey}.
   */
  takeSeparate(key: string): QueuedReport | undefined {
    const entry = this.separate.get(key);
    if (entry === undefined) return undefined;
    this.separate.delete(key);
    entry.isSeparate = false;
    entry.isTaken = true;
    return entry;
  }

  /** Ends the commit of a taken report, which is written or needs no write. */
  finish(taken: QueuedReport): void {
    const { nodeId, report, number } = taken;
    const ofNode = this.unwritten.get(nodeId);
    const newest = ofNode?.get(report.replicaId);
    if (newest === taken) {
      ofNode?.delete(newest);
      if (ofNode?.isEmpty === true) this.unwritten.delete(nodeId);
    } else if (newest !== undefined) newest.waitsForEarlier = false;
    if (this.waiters.size > 0) this.endWaiters(nodeId, report.replicaId, number);
  }

  /**
   * Returns a taken report that was not written. A newer report about the replica that waits takes
   * its place.
   * @param separately - True to write the report without others.
   */
  putBack(taken: QueuedReport, separately: boolean): void {
    const newest = this.unwritten.get(taken.nodeId)?.get(taken.report.replicaId);
    if (newest === undefined) return;
    newest.isTaken = false;
    newest.waitsForEarlier = false;
    newest.isSeparate = separately;
    if (separately) {
      this.shared.delete(newest);
      this.separate.set(toReportKey(newest), newest);
    } else this.shared.add(newest);
  }

  /** Calls `onEnd` once every report of the node that was added so far is written. */
  whenWritten(nodeId: string, onEnd: (error?: Error) => void): void {
    const missing = this.unwritten.get(nodeId);
    if (missing === undefined) return onEnd();
    const waiters = this.waiters.get(nodeId) ?? new Set<Waiter>();
    this.waiters.set(nodeId, waiters.add({ missing: missing.listNumbers(), onEnd }));
  }

  /** Ends all waiting calls of {@link whenWritten} with an error. */
  failWaiters(reason: Error): void {
    const waiters = [...this.waiters.values()].flatMap((ofNode) => [...ofNode]);
    this.waiters.clear();
    for (const { onEnd } of waiters) onEnd(reason);
  }

  private endWaiters(nodeId: string, replicaId: string, number: number): void {
    const waiters = this.waiters.get(nodeId);
    for (const waiter of waiters ?? []) {
      const needed = waiter.missing.get(replicaId);
      if (needed !== undefined && needed <= number) waiter.missing.delete(replicaId);
      if (waiter.missing.size > 0) continue;
      waiters?.delete(waiter);
      waiter.onEnd();
    }
    if (waiters?.size === 0) this.waiters.delete(nodeId);
  }
}

/** Identifies the node and the replica of a report. */
export function toReportKey({ nodeId, report }: Pick<QueuedReport, 'nodeId' | 'report'>): string {
  return `${nodeId} ${report.replicaId}`;
}
