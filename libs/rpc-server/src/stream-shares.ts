import { Code, ConnectError } from '@connectrpc/connect';
import type { Lane } from './lanes.js';

/** What {@link StreamShares} grants. */
export interface StreamShareLimits {
  readonly streams: number;
  readonly streamsPerPrincipal: number;
  readonly controlStreamsPerPrincipal: number;
}

/** Counts open streams and long calls. They cost memory rather than time, so they are refused instead of waiting. */
export class StreamShares {
  private readonly byPrincipal = new Map<string, number>();
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
   * @returns What to call, once, when the stream has ended.
   * @throws ConnectError RESOURCE_EXHAUSTED when the principal, or the server, has too many.
   */
  begin(lane: Lane, principal: string): () => void {
    const control = lane === 'control';
    const { streams, streamsPerPrincipal, controlStreamsPerPrincipal } = this.limits;
    const key = control ? `control ${principal}` : principal;
    const own = this.byPrincipal.get(key) ?? 0;
    const limit = control ? controlStreamsPerPrincipal : streamsPerPrincipal;
    if (own >= limit) throw this.refuse(`this connection has ${own} streams open, as many as it may; close some first`);
    if (!control && this.total >= streams) throw this.refuse(`the server has ${streams} streams open; try again later`);
    this.byPrincipal.set(key, own + 1);
    if (!control) this.total += 1;
    let ended = false;
    return () => {
      if (ended) return;
      ended = true;
      if (!control) this.total -= 1;
      const left = (this.byPrincipal.get(key) ?? 1) - 1;
      if (left > 0) this.byPrincipal.set(key, left);
      else this.byPrincipal.delete(key);
    };
  }

  private refuse(message: string): ConnectError {
    this.refusedCount += 1;
    return new ConnectError(message, Code.ResourceExhausted);
  }
}
