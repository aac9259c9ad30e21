import { Code, ConnectError } from '@connectrpc/connect';
import type { CallPriority } from './call-priority.js';

export interface StreamLimits {
  readonly streams: number;
  readonly streamsPerPeer: number;
  readonly streamsPerPrincipal: number;
  readonly controlStreamsPerPrincipal: number;
}

/**
 * Limits open streams and long-running calls. They cost memory rather than time, so further streams
 * are refused instead of queued.
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
   * @param peer - Address of the client, from `toPeerKey`. Streams of control priority do not count
   *   against the address: agents of many nodes may share one.
   * @returns The function that gives the stream's share back. Call it when the stream has ended;
   *   later calls have no effect.
   * @throws ConnectError RESOURCE_EXHAUSTED, naming the limit, when the principal, its address or
   *   the server has too many streams.
   */
  acquire(priority: CallPriority, principal: string, peer: string): () => void {
    const control = priority === 'control';
    const { streams, streamsPerPeer, streamsPerPrincipal, controlStreamsPerPrincipal } =
      this.limits;
    const key = control ? `control ${principal}` : principal;
    const own = this.byPrincipal.get(key);
    if (own >= (control ? controlStreamsPerPrincipal : streamsPerPrincipal)) {
      throw this.refuse(
        `this client has ${own} streams open, the limit of one client; close some first`,
      );
    }
    const fromPeer = this.byPeer.get(peer);
    if (!control && fromPeer >= streamsPerPeer) {
      throw this.refuse(
        `clients at ${peer} have ${fromPeer} streams open, the limit of one address; close some first`,
      );
    }
    if (!control && this.total >= streams) {
      throw this.refuse(`the server has ${streams} streams open, its limit; try again later`);
    }
    this.count(control, key, peer, 1);
    let ended = false;
    return () => {
      if (ended) return;
      ended = true;
      this.count(control, key, peer, -1);
    };
  }

  private count(control: boolean, key: string, peer: string, by: 1 | -1): void {
    this.byPrincipal.add(key, by);
    if (control) return;
    this.byPeer.add(peer, by);
    this.total += by;
  }

  private refuse(message: string): ConnectError {
    this.refusedCount += 1;
    return new ConnectError(message, Code.ResourceExhausted);
  }
}

/** Counts by key. Keeps no key whose count is 0. */
class KeyedCounter {
  private readonly counts = new Map<string, number>();

  get(key: string): number {
    return this.counts.get(key) ?? 0;
  }

  add(key: string, by: number): void {
    const count = this.get(key) + by;
    if (count > 0) this.counts.set(key, count);
    else this.counts.delete(key);
  }
}
