import { Code, ConnectError } from '@connectrpc/connect';
import type { Lane } from './lanes.js';

/** What {@link StreamShares} grants. */
export interface StreamShareLimits {
  readonly streams: number;
  readonly streamsPerPeer: number;
  readonly streamsPerPrincipal: number;
  readonly controlStreamsPerPrincipal: number;
}

/**
 * Counts open streams and long calls. They cost memory rather than time, so they are refused
 * instead of waiting.
 */
export class StreamShares {
  private readonly byPrincipal = new Tally();
  private readonly byPeer = new Tally();
  private total = 0;
  private refusedCount = 0;

  constructor(private readonly limits: StreamShareLimits) {}

  /** Open now, without those of the control lane. */
  get open(): number {
    return this.total;
  }

  /** Refused since the start. */
  get refused(): number {
    return this.refusedCount;
  }

  /**
   * @param peer - Where the principal is, as `peerOf` has it. Streams of the control lane do not
   *   count there: agents of many nodes may be behind one address.
   * @returns What to call, once, when the stream has ended.
   * @throws ConnectError RESOURCE_EXHAUSTED, naming the limit, when the principal, its address or
   *   the server has too many.
   */
  begin(lane: Lane, principal: string, peer: string): () => void {
    const control = lane === 'control';
    const { streams, streamsPerPeer, streamsPerPrincipal, controlStreamsPerPrincipal } =
      this.limits;
    const key = control ? `control ${principal}` : principal;
    const own = this.byPrincipal.of(key);
    if (own >= (control ? controlStreamsPerPrincipal : streamsPerPrincipal)) {
      throw this.refuse(
        `this client has ${own} streams open, the limit of one client; close some first`,
      );
    }
    const fromPeer = this.byPeer.of(peer);
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

/** Counts by key; keys with nothing are not kept. */
class Tally {
  private readonly counts = new Map<string, number>();

  of(key: string): number {
    return this.counts.get(key) ?? 0;
  }

  add(key: string, by: number): void {
    const count = this.of(key) + by;
    if (count > 0) this.counts.set(key, count);
    else this.counts.delete(key);
  }
}
