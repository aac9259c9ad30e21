import { fromConnectError } from '@cloudless/api';

/** A kind of watch, and the effect of its items on the state that a client keeps. */
export interface WatchKind<Item> {
  readonly name: string;
  open(afterRevision: bigint, signal: AbortSignal): AsyncIterable<Item>;
  applyItem(state: Map<string, string>, item: Item): void;
}

/**
 * A client that keeps the watched state, and resumes the watch after the last revision that it
 * received. Starts the watch again only after OUT_OF_RANGE or NOT_FOUND.
 */
export class ResumingWatcher<Item extends { readonly revision: bigint }> {
  readonly state = new Map<string, string>();
  /** Number of watches without a revision. */
  restarts = 0;
  /** Number of watches after a revision. */
  resumptions = 0;
  /** Messages of OUT_OF_RANGE errors. */
  readonly refusals: string[] = [];
  /** Revisions that went back, and errors that a watch must not return. */
  readonly faults: string[] = [];
  private revision = 0n;
  private connection: AbortController | undefined;
  private pause: Promise<void> | undefined;
  private resumeReading: () => void = () => undefined;

  constructor(private readonly kind: WatchKind<Item>) {}

  get isConnected(): boolean {
    return this.connection !== undefined;
  }

  /**
   * Starts or resumes the watch. Does nothing while connected.
   * @param maxItems - The connection breaks after this number of items. Default: never.
   */
  connect(maxItems = Number.POSITIVE_INFINITY): void {
    if (this.connection !== undefined) return;
    const connection = new AbortController();
    this.connection = connection;
    if (this.revision === 0n) {
      this.state.clear();
      this.restarts += 1;
    } else {
      this.resumptions += 1;
    }
    void this.read(connection, maxItems);
  }

  /** Breaks the connection; unread items are lost. */
  disconnect(): void {
    this.connection?.abort();
    this.connection = undefined;
    this.continue();
  }

  /** Stops reading until {@link continue}. */
  stall(): void {
    this.pause ??= new Promise((resolve) => (this.resumeReading = resolve));
  }

  /** Continues reading after {@link stall}. */
  continue(): void {
    this.pause = undefined;
    this.resumeReading();
  }

  private async read(connection: AbortController, maxItems: number): Promise<void> {
    let remaining = maxItems;
    try {
      for await (const item of this.kind.open(this.revision, connection.signal)) {
        await this.pause;
        if (connection.signal.aborted) return;
        if (item.revision < this.revision)
          this.faults.push(`revision ${item.revision} came after ${this.revision}`);
        this.revision = item.revision;
        this.kind.applyItem(this.state, item);
        remaining -= 1;
        if (remaining <= 0) return this.disconnect();
      }
    } catch (reason) {
      if (connection.signal.aborted) return;
      const { kind, message } = fromConnectError(reason);
      if (kind === 'compacted') {
        this.refusals.push(message);
        this.revision = 0n;
      } else if (kind === 'notFound') {
        this.state.clear();
        this.revision = 0n;
      } else if (kind !== 'unavailable' && kind !== 'exhausted') {
        this.faults.push(`${kind}: ${message}`);
      }
    }
    if (this.connection === connection) this.connection = undefined;
  }
}
