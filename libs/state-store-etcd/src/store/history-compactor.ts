import { errorFields, errorKindOf, type Log } from '@cloudless/base';
import { HistoryWindow, type HistorySegment, type Revision } from '@cloudless/state-store';

/** Segments of the retained history at most: how exactly the limits are kept. */
const SEGMENTS = 128;

/** Number and size of the changes of one revision, for the limits of the history. */
export interface HistoricWrite {
  readonly revision: Revision;
  readonly changes: number;
  readonly bytes: number;
  readonly hasDeletions: boolean;
}

export interface HistoryCompactorOptions {
  readonly historyLimit: number;
  readonly historyBytes: number;
  /** Resolves when the history may be read. Rejects when `signal` is aborted. */
  readonly pause: (signal: AbortSignal) => Promise<void>;
  /**
   * Reads the retained history up to `last`, oldest first, at least as much of it as the limits
   * allow to stay.
   */
  readonly readHistory: (last: Revision, signal: AbortSignal) => AsyncIterable<HistoricWrite>;
  /** Drops the history before a revision of the store. */
  readonly compact: (revision: Revision) => Promise<unknown>;
  readonly log: Log;
}

/**
 * Drops old history of etcd: at least the newest `historyLimit` changes stay, unless they exceed
 * `historyBytes`. A leader first reads the history that earlier leaders wrote, then counts its own
 * writes; so the limits hold however short the leaderships are. Two leaders that compact at once are
 * harmless: each selects a revision far behind the newest one, and etcd refuses the older of two.
 *
 * etcd forgets a deletion at exactly the revision of a compaction, and a watch that begins there
 * would miss it; so only revisions without deletions are selected.
 */
export class HistoryCompactor {
  /** The newest write of this process. */
  private newest: Revision | undefined;
  private current: Compaction | undefined;
  private previous: Promise<unknown> = Promise.resolve();

  constructor(private readonly options: HistoryCompactorOptions) {}

  /** @param isEnabled - True on the coordinator that leads. Initially false. */
  setEnabled(isEnabled: boolean): void {
    if (isEnabled === (this.current !== undefined)) return;
    const { current, options, newest } = this;
    if (current !== undefined) {
      current.end();
      this.previous = Promise.all([this.previous, current.waitUntilIdle()]);
    }
    this.current = isEnabled ? new Compaction(options) : undefined;
    if (newest !== undefined) this.current?.begin(newest);
  }

  /** Records a write of this process. */
  record(write: HistoricWrite): void {
    if (this.newest === undefined || write.revision > this.newest) this.newest = write.revision;
    this.current?.begin(this.newest);
    this.current?.record(write);
  }

  /** Resolves when no history is read, and no compaction runs. */
  async waitUntilIdle(): Promise<void> {
    await this.previous;
    await this.current?.waitUntilIdle();
  }
}

/** The compactions of one leadership. */
class Compaction {
  private readonly ending = new AbortController();
  /** The newest write that this process knows. */
  private newest: Revision = 0n;
  private window: HistoryWindow;
  private segment: HistorySegment | undefined;
  private readonly segmentChanges: number;
  /** Writes since the read of the earlier history began; undefined once that history is counted. */
  private later: HistoricWrite[] | undefined = [];
  private reading: Promise<void> | undefined;
  private running: Promise<void> | undefined;
  private due: Revision | undefined;

  constructor(private readonly options: HistoryCompactorOptions) {
    this.window = this.createWindow();
    this.segmentChanges = Math.max(1, Math.floor(options.historyLimit / SEGMENTS));
  }

  /**
   * Begins with the history of earlier leaders, unless that has begun.
   * @param newest - The newest write that this process knows.
   */
  begin(newest: Revision): void {
    this.newest = newest;
    this.reading ??= this.readEarlier();
  }

  record(write: HistoricWrite): void {
    if (this.later === undefined) this.add(write);
    else this.later.push(write);
  }

  end(): void {
    this.ending.abort();
  }

  async waitUntilIdle(): Promise<void> {
    await this.reading;
    while (this.running !== undefined) await this.running;
  }

  private createWindow(): HistoryWindow {
    const { historyLimit: changes, historyBytes: bytes } = this.options;
    return new HistoryWindow({ changes, bytes });
  }

  private async readEarlier(): Promise<void> {
    const { signal } = this.ending;
    while (!signal.aborted && this.later !== undefined) {
      try {
        await this.options.pause(signal);
        await this.countHistory(this.newest, signal);
      } catch (reason) {
        if (signal.aborted) return;
        this.options.log.warn('history of etcd not read', errorFields(reason));
      }
    }
  }

  private async countHistory(last: Revision, signal: AbortSignal): Promise<void> {
    this.later = [];
    this.window = this.createWindow();
    this.segment = undefined;
    for await (const write of this.options.readHistory(last, signal)) this.add(write);
    const { later } = this;
    this.later = undefined;
    for (const write of later) if (write.revision > last) this.add(write);
  }

  private add({ revision, changes, bytes, hasDeletions }: HistoricWrite): void {
    const { first = revision, changes: before = 0, bytes: bytesBefore = 0 } = this.segment ?? {};
    // answers may arrive in another order than that of the revisions
    const last =
      revision > (this.segment?.last ?? 0n) ? revision : (this.segment?.last ?? revision);
    this.segment = { first, last, changes: before + changes, bytes: bytesBefore + bytes };
    const isFull =
      this.segment.changes >= this.segmentChanges ||
      this.segment.bytes >= this.options.historyBytes / SEGMENTS;
    if (!isFull || hasDeletions || last !== revision) return;
    const added = [this.segment];
    this.segment = undefined;
    const dropped = this.window.findSurplus(added);
    this.window.advance(added, dropped);
    this.due = dropped.at(-1)?.last ?? this.due;
    this.compactDue();
  }

  private compactDue(): void {
    const { log, compact } = this.options;
    if (this.ending.signal.aborted || this.due === undefined || this.running !== undefined) return;
    const revision = this.due;
    this.due = undefined;
    this.running = compact(revision)
      .catch((reason: unknown) => {
        // another leader has dropped this revision
        if (errorKindOf(reason) === 'compacted') return;
        log.warn('history of etcd not compacted', { revision, ...errorFields(reason) });
      })
      .then(() => {
        this.running = undefined;
        this.compactDue();
      });
  }
}
