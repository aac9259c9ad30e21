import { errorMessageOf, type Clock, type Timer } from '@cloudless/base';
import type { Link } from './link.js';

/** Streams of a connection above which a further connection is opened. */
const STREAMS_PER_LINK = 64;
/** Time after a failed attempt in which no other is made, milliseconds; doubles up to the maximum. */
const FIRST_PAUSE_MS = 100;
const MAX_PAUSE_MS = 2_000;
/** Time after which a direct path is tried again while the relay is in use, milliseconds. */
const DIRECT_RETRY_MS = 30_000;
/** Time without an answer of the mesh address after which the relay is dialled too, milliseconds. */
const SILENCE_MS = 500;

export interface PeerLinksOptions {
  readonly nodeId: string;
  readonly maxLinks: number;
  readonly clock: Clock;
  /** Dials the mesh address. Undefined: the node has none. */
  readonly dialDirect: () => Promise<Link> | undefined;
  /** Dials through the relay. Undefined: there is no relay at the moment. */
  readonly dialRelay: () => Promise<Link> | undefined;
}

/** Error of an attempt whose cause is not the network: another path does not help. */
export class PeerRefusedError extends Error {
  override readonly name = 'PeerRefusedError';
}

/** The connections that this proxy keeps to the proxy of one other node. */
export class PeerLinks {
  private readonly links = new Set<Link>();
  private dialling: Promise<Link> | undefined;
  private failures = 0;
  private pausedUntilMs = 0;
  private lastFailure = '';
  private directAgainMs = 0;
  private timer: Timer | undefined;
  private isClosed = false;

  constructor(private readonly options: PeerLinksOptions) {}

  /** All connections to the node. */
  get all(): Iterable<Link> {
    return this.links;
  }

  /**
   * Returns a connection, which is dialled when there is none.
   * @throws Error when the node cannot be reached.
   */
  async get(): Promise<Link> {
    const link = this.leastBusy();
    if (link === undefined) return this.dial();
    const mayGrow = this.links.size < this.options.maxLinks && link.path === 'link';
    if (mayGrow && link.streamCount >= STREAMS_PER_LINK) this.dialAhead();
    if (link.path === 'relay' && this.options.clock.now() >= this.directAgainMs) this.tryDirect();
    return link;
  }

  /** Dials a connection with the present certificate, beside those that are open. */
  async renew(): Promise<void> {
    await this.dial();
  }

  /** Forgets a connection that accepts no further streams. */
  remove(link: Link): void {
    this.links.delete(link);
  }

  close(reason: string): void {
    this.isClosed = true;
    this.timer?.cancel();
    for (const link of [...this.links]) link.close(reason);
    this.links.clear();
  }

  leave(reason: string): void {
    this.isClosed = true;
    for (const link of [...this.links]) link.leave(reason);
  }

  private leastBusy(): Link | undefined {
    let best: Link | undefined;
    for (const link of this.links) {
      if (!link.isUsable) continue;
      const isBetterPath = best?.path === 'relay' && link.path === 'link';
      const isSamePath = best?.path === link.path;
      if (best === undefined || isBetterPath || (isSamePath && link.streamCount < best.streamCount))
        best = link;
    }
    return best;
  }

  private dial(): Promise<Link> {
    if (this.isClosed) return Promise.reject(new Error('the proxy is about to stop'));
    if (this.dialling !== undefined) return this.dialling;
    if (this.options.clock.now() < this.pausedUntilMs)
      return Promise.reject(new Error(this.lastFailure));
    this.dialling = this.dialAny().finally(() => (this.dialling = undefined));
    return this.dialling;
  }

  /** Dials a further connection while the present ones are used. */
  private dialAhead(): void {
    this.dial().catch(() => undefined);
  }

  private async dialAny(): Promise<Link> {
    const { clock, nodeId } = this.options;
    try {
      const link = await this.dialDirectOrRelay();
      if (this.isClosed) {
        link.close('the node is gone');
        throw new Error(`the node "${nodeId}" is gone`);
      }
      this.failures = 0;
      this.links.add(link);
      return link;
    } catch (reason) {
      this.failures += 1;
      const pauseMs = Math.min(MAX_PAUSE_MS, FIRST_PAUSE_MS * 2 ** (this.failures - 1));
      this.pausedUntilMs = clock.now() + pauseMs;
      this.lastFailure = `the proxy of the node "${nodeId}" is not reached: ${errorMessageOf(reason)}`;
      throw new Error(this.lastFailure, { cause: reason });
    }
  }

  private async dialDirectOrRelay(): Promise<Link> {
    const { clock, dialDirect, dialRelay } = this.options;
    let failure = 'the node has no mesh address';
    const direct = clock.now() >= this.directAgainMs ? dialDirect() : undefined;
    if (direct !== undefined) {
      try {
        const link = await this.waitBriefly(direct);
        if (link !== undefined) return link;
      } catch (reason) {
        // The node itself answered and is refused: the relay would lead to the same node.
        if (reason instanceof PeerRefusedError) throw reason;
        failure = errorMessageOf(reason);
        return this.dialRelayAfter(failure, dialRelay());
      }
      const relay = dialRelay();
      return relay === undefined ? direct : this.firstOf(direct, relay);
    }
    return this.dialRelayAfter(failure, dialRelay());
  }

  /** Resolves to undefined when the address has not answered after a while, as behind a filter. */
  private waitBriefly(direct: Promise<Link>): Promise<Link | undefined> {
    return new Promise((resolve, reject) => {
      const timer = this.options.clock.setTimer(SILENCE_MS, () => resolve(undefined));
      direct.then(resolve, reject).finally(() => timer.cancel());
    });
  }

  private async dialRelayAfter(failure: string, relay: Promise<Link> | undefined): Promise<Link> {
    const relayed = await relay?.catch((reason: unknown) => {
      if (reason instanceof PeerRefusedError) throw reason;
      throw new Error(`${failure}; through the relay: ${errorMessageOf(reason)}`);
    });
    if (relayed === undefined) throw new Error(failure);
    this.directAgainMs = this.options.clock.now() + DIRECT_RETRY_MS;
    return relayed;
  }

  /** Returns the path that opens first. A direct path that opens later replaces the relay. */
  private async firstOf(direct: Promise<Link>, relay: Promise<Link>): Promise<Link> {
    const ignore = (): void => undefined;
    const link = await Promise.any([direct, relay]).catch(async () => {
      const failure = await direct.then(String, (reason: unknown) => {
        if (reason instanceof PeerRefusedError) throw reason;
        return errorMessageOf(reason);
      });
      return this.dialRelayAfter(failure, relay);
    });
    if (link.path === 'link') relay.then((each) => each.close('a direct path'), ignore);
    else {
      this.directAgainMs = this.options.clock.now() + DIRECT_RETRY_MS;
      direct.then((each) => this.replaceRelay(each), ignore);
    }
    return link;
  }

  /** Replaces the relay by a direct connection when the node can be dialled by now. */
  private tryDirect(): void {
    this.directAgainMs = this.options.clock.now() + DIRECT_RETRY_MS;
    if (this.dialling !== undefined) return;
    this.options.dialDirect()?.then(
      (link) => this.replaceRelay(link),
      () => undefined,
    );
  }

  private replaceRelay(link: Link): void {
    if (this.isClosed) return link.close('the node is gone');
    for (const each of [...this.links]) if (each.path === 'relay') each.leave('a direct path');
    this.links.add(link);
  }
}
