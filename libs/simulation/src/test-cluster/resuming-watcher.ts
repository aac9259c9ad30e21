import { fromConnectError } from '@cloudless/api';

/** A kind of watch, and how its items change the picture that a client keeps. */
export interface WatchKind<Item> {
  readonly name: string;
  open(afterRevision: bigint, signal: AbortSignal): AsyncIterable<Item>;
  applyItem(picture: Map<string, string>, item: Item): void;
}

/**
 * A client that keeps a picture by a watch and resumes the watch where it broke off. Starts again
 * only after OUT_OF_RANGE.
 */
export class ResumingWatcher<Item extends { readonly revision: bigint }> {
  readonly picture = new Map<string, string>();
  /** Number of starts from the beginning, and of resumptions. */
  restarts = 0;
  resumptions = 0;
  /** Messages of OUT_OF_RANGE errors. */
  readonly refusals: string[] = [];
  /** Observations that must never happen. */
  readonly faults: string[] = [];
  private revision = 0n;
  private connection: AbortController | undefined;
  private pause: Promise<void> | undefined;
  private resumeReading: () => void = () => undefined;

  constructor(private readonly kind: WatchKind<Item>) {}

  get isConnected(): boolean {
    return this.connection !== undefined;
  }

  /** @param most - The connection breaks after this number of items. */
  connect(most = Number.POSITIVE_INFINITY): void {
    if (this.connection !== undefined) return;
    const connection = new AbortController();
    this.connection = connection;
    if (this.revision === 0n) {
      this.picture.clear();
      this.restarts += 1;
    } else {
      this.resumptions += 1;
    }
    void this.read(connection, most);
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

  continue(): void {
    this.pause = undefined;
    this.resumeReading();
  }

  private async read(connection: AbortController, most: number): Promise<void> {
    let left = most;
    try {
      for await (const item of this.kind.open(this.revision, connection.signal)) {
        await this.pause;
        if (connection.signal.aborted) return;
        if (item.revision < this.revision)
          this.faults.push(`revision ${item.revision} came after ${this.revision}`);
        this.revision = item.revision;
        this.kind.applyItem(this.picture, item);
        left -= 1;
        if (left <= 0) return this.disconnect();
      }
    } catch (reason) {
      if (connection.signal.aborted) return;
      const { kind, message } = fromConnectError(reason);
      if (kind === 'compacted') {
        this.refusals.push(message);
        this.revision = 0n;
      } else if (kind === 'notFound') {
        this.picture.clear();
        this.revision = 0n;
      } else if (kind !== 'unavailable' && kind !== 'exhausted') {
        this.faults.push(`${kind}: ${message}`);
      }
    }
    if (this.connection === connection) this.connection = undefined;
  }
}
