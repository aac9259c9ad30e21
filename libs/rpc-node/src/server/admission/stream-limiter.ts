import type { ConnectError } from '@connectrpc/connect';
import type { CallPriority } from './call-priority.js';
import { createError } from './retryable-error.js';

/** Limits of open streams; the comments are at `RpcLimits`. */
export interface StreamLimits {
  readonly streams: number;
  readonly streamsPerPeer: number;
  readonly streamsPerPrincipal: number;
  readonly controlStreamsPerPrincipal: number;
}

/**
 * Limits open streams and long-running calls. Streams cost memory rather than time, so further
 * streams are refused instead of queued.
 */
export class StreamLimiter {
  private readonly byPrincipal = new KeyedCounter();
  private readonly byPeer = new KeyedCounter();
  private total = 0;
  private refusedCount = 0;

  constructor(private readonly limits: StreamLimits) {}

  /** Streams open now, without control priority. */
  get openStreams(): number {
    return this.total;
  }

  /** Streams refused since the start. */
  get refusedStreams(): number {
    return this.refusedCount;
  }

  /**
   * Counts a new stream.
   * @param peer - Key of the address of the client, from `toPeerKey`. Streams of control priority
   *   do not count against the address, because the agents of many nodes may share an address.
   * @returns A function that ends the count of the stream. Run this function when the stream has
   *   ended; running it again has no effect.
   * @throws ConnectError RESOURCE_EXHAUSTED, naming the limit, when the principal, its address or
   *   the server has too many streams.
   */
  acquire(priority: CallPriority, principal: string, peer: string): () => void {
    const isControl = priority === 'control';
    const { streams, streamsPerPeer, streamsPerPrincipal, controlStreamsPerPrincipal } =
      this.limits;
    const key = isControl ? `control ${principal}` : principal;
    const openOfPrincipal = this.byPrincipal.get(key);
    if (openOfPrincipal >= (isControl ? controlStreamsPerPrincipal : streamsPerPrincipal)) {
      throw this.refuse(
        `this client has ${openOfPrincipal} streams open, the limit of one client; close some first`,
      );
    }
    const openOfPeer = this.byPeer.get(peer);
    if (!isControl && openOfPeer >= streamsPerPeer) {
      throw this.refuse(
        `clients at ${peer} have ${openOfPeer} streams open, the limit of one address; close some first`,
      );
    }
    if (!isControl && this.total >= streams) {
      throw this.refuse(`the server has ${streams} streams open, its limit; try again later`);
    }
    this.addToCounts(isControl, key, peer, 1);
    let ended = false;
    return () => {
      if (ended) return;
      ended = true;
      this.addToCounts(isControl, key, peer, -1);
    };
  }

  private addToCounts(isControl: boolean, key: string, peer: string, delta: 1 | -1): void {
    this.byPrincipal.add(key, delta);
    if (isControl) return;
    this.byPeer.add(peer, delta);
    this.total += delta;
  }

  private refuse(message: string): ConnectError {
    this.refusedCount += 1;
    return createError('TOO_MANY_STREAMS', message);
  }
}

/** Holds a count for each key, and no key whose count is 0. */
class KeyedCounter {
  private readonly counts = new Map<string, number>();

  get(key: string): number {
    return this.counts.get(key) ?? 0;
  }

  add(key: string, delta: number): void {
    const count = this.get(key) + delta;
    if (count > 0) this.counts.set(key, count);
    else this.counts.delete(key);
  }
}
