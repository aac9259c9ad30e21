import type { TrafficReport } from '@cloudless/api';
import type { NetworkFeedPort, NetworkFeedReader } from '../ports.js';

type FeedPosition = Parameters<NetworkFeedPort['open']>[0];

/** A reader of a {@link FakeFeed}. The test adds the updates that it yields. */
export class FakeFeedReader implements NetworkFeedReader {
  readonly acknowledged: bigint[] = [];
  readonly traffic: TrafficReport[] = [];
  isClosed = false;
  private readonly updates: Uint8Array[] = [];
  private wake: () => void = () => undefined;

  constructor(readonly position: FeedPosition) {}

  push(bytes: Uint8Array): void {
    this.updates.push(bytes);
    this.wake();
  }

  async *read(signal: AbortSignal): AsyncGenerator<Uint8Array> {
    signal.addEventListener('abort', () => this.wake());
    while (!signal.aborted) {
      const next = this.updates.shift();
      if (next !== undefined) yield next;
      else await new Promise<void>((resolve) => (this.wake = resolve));
    }
  }

  acknowledge(revision: bigint): void {
    this.acknowledged.push(revision);
  }

  addTraffic(report: TrafficReport): void {
    this.traffic.push(report);
  }

  close(): void {
    this.isClosed = true;
  }
}

/** A feed of network proxies whose updates a test writes. */
export class FakeFeed implements NetworkFeedPort {
  readonly readers: FakeFeedReader[] = [];
  /** Replicas that are endpoints of a service. */
  readonly endpoints = new Set<string>();
  private readonly gone = new Set<string>();
  private readonly goneListeners = new Set<(replicaIds: readonly string[]) => void>();

  open(position: FeedPosition): FakeFeedReader {
    const reader = new FakeFeedReader(position);
    this.readers.push(reader);
    return reader;
  }

  hasEndpoint({ id }: { readonly id: string }): boolean {
    return this.endpoints.has(id);
  }

  isGone(replicaId: string): boolean {
    return this.gone.has(replicaId);
  }

  onGone(listener: (replicaIds: readonly string[]) => void): () => void {
    this.goneListeners.add(listener);
    return () => this.goneListeners.delete(listener);
  }

  /** Reports that no proxy chooses these replicas any more. */
  reportGone(...replicaIds: readonly string[]): void {
    for (const id of replicaIds) this.gone.add(id);
    for (const listener of this.goneListeners) listener(replicaIds);
  }
}
