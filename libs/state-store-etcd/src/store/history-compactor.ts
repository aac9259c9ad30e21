import { errorFields, type Log } from '@cloudless/base';
import { HistoryWindow, type HistorySegment, type Revision } from '@cloudless/state-store';

/** Segments of the retained history at most: how exactly the limits are kept. */
const SEGMENTS = 128;

export interface HistoryCompactorOptions {
  readonly historyLimit: number;
  readonly historyBytes: number;
  /** Drops the history before a revision of the store. */
  readonly compact: (revision: Revision) => Promise<unknown>;
  readonly log: Log;
}

/**
 * Drops old history of etcd, as far as this process wrote it: at least the newest `historyLimit`
 * changes stay, unless they exceed `historyBytes`. etcd forgets a deletion at exactly the revision
 * of a compaction, and a watch that begins there would miss it; so only revisions without deletions
 * are selected.
 */
export class HistoryCompactor {
  /** True on the coordinator that leads; others only count. */
  isEnabled = false;
  private readonly window: HistoryWindow;
  private readonly segmentChanges: number;
  private segment: HistorySegment | undefined;
  private running: Promise<void> | undefined;
  private due: Revision | undefined;

  constructor(private readonly options: HistoryCompactorOptions) {
    const { historyLimit: changes, historyBytes: bytes } = options;
    this.window = new HistoryWindow({ changes, bytes });
    this.segmentChanges = Math.max(1, Math.floor(changes / SEGMENTS));
  }

  /** Records a write of this process. */
  record(write: {
    readonly revision: Revision;
    readonly changes: number;
    readonly bytes: number;
    readonly hasDeletions: boolean;
  }): void {
    const { revision, changes, bytes, hasDeletions } = write;
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

  /** Resolves when no compaction runs. */
  async waitUntilIdle(): Promise<void> {
    while (this.running !== undefined) await this.running;
  }

  private compactDue(): void {
    if (!this.isEnabled || this.due === undefined || this.running !== undefined) return;
    const revision = this.due;
    this.due = undefined;
    this.running = this.options
      .compact(revision)
      .catch((reason: unknown) =>
        this.options.log.warn('history of etcd not compacted', {
          revision,
          ...errorFields(reason),
        }),
      )
      .then(() => {
        this.running = undefined;
        this.compactDue();
      });
  }
}
