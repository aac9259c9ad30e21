/** One encoded update. */
export interface LoggedUpdate {
  readonly revision: bigint;
  readonly bytes: Uint8Array;
}

/**
 * The newest updates of a feed, encoded once and shared by all readers, which each keep only a
 * position. The log is bounded: a reader that has fallen behind its start needs everything again.
 */
export class UpdateLog {
  private readonly updates: LoggedUpdate[] = [];
  private firstPosition = 0;
  private byteCount = 0;
  private hasDropped = false;

  /**
   * @param startRevision - Revision before the first update.
   * @param maxBytes - Bytes above which the oldest updates are dropped.
   */
  constructor(
    private startRevision: bigint,
    private readonly maxBytes: number,
  ) {}

  /** Position of the next update that is appended. */
  get end(): number {
    return this.firstPosition + this.updates.length;
  }

  /** Bytes of all kept updates. */
  get bytes(): number {
    return this.byteCount;
  }

  append(update: LoggedUpdate): void {
    this.updates.push(update);
    this.byteCount += update.bytes.byteLength;
    let dropped = 0;
    while (this.byteCount > this.maxBytes && dropped < this.updates.length) {
      const oldest = this.updates[dropped];
      if (oldest === undefined) break;
      this.byteCount -= oldest.bytes.byteLength;
      this.startRevision = oldest.revision;
      dropped += 1;
    }
    if (dropped === 0) return;
    this.updates.splice(0, dropped);
    this.firstPosition += dropped;
    this.hasDropped = true;
  }

  /** Returns an update; `dropped` when the log no longer has it, undefined at the end. */
  read(position: number): LoggedUpdate | 'dropped' | undefined {
    if (position < this.firstPosition) return 'dropped';
    return this.updates[position - this.firstPosition];
  }

  /**
   * Returns the position of the first update that a reader needs who knows everything up to a
   * revision. Updates of the revision itself are repeated, as liveness changes without a revision.
   * @returns Undefined when the log does not reach back to the revision.
   */
  findAfter(revision: bigint): number | undefined {
    if (revision < this.startRevision) return undefined;
    // Some of the dropped updates may have had the same revision.
    if (revision === this.startRevision && this.hasDropped) return undefined;
    const index = this.updates.findIndex((update) => update.revision >= revision);
    return index < 0 ? this.end : this.firstPosition + index;
  }
}
