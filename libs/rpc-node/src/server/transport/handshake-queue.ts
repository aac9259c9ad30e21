import type { Clock, Timer } from '@cloudless/base';
import { FairQueue } from '../admission/fair-queue.js';
import { toPeerKey } from '../admission/peer-key.js';

/**
 * Incomplete handshakes at which further clients wait. Their answers arrive together, and all calls
 * wait while one iteration of the event loop handles them, about 2 ms each.
 */
const PACED_HANDSHAKES = 64;
/**
 * Age from which an incomplete handshake no longer delays others, milliseconds: `slow` while other
 * handshakes complete, `stalled` once none has completed for that long.
 */
const UNPACED_AGE_MS = { slow: 1_000, stalled: 200 };
/** Handshakes that start in one iteration of the event loop. The start of one takes about 0.5 ms. */
const STARTS_PER_ITERATION = 16;
/**
 * Age at which an incomplete handshake may be replaced, milliseconds: `slow` while other handshakes
 * complete, because thousands of honest clients on one machine answer late; `stalled` once none has
 * completed for that long, as when all places are taken by clients that never answer.
 */
const REPLACEABLE_AGE_MS = { slow: 5_000, stalled: 2_000 };

/** The part of a connection that the queue reads. */
interface RemoteConnection {
  /** IP address of the client. */
  readonly remoteAddress: string;
}

export interface HandshakeQueueSettings<Connection> {
  readonly clock: Clock;
  /** As in `RpcLimits`. */
  readonly maxHandshakes: number;
  /** Starts the handshake of a connection. */
  readonly start: (connection: Connection) => void;
  /** Closes a connection whose handshake gives way to another. */
  readonly evict: (connection: Connection) => void;
  /** Runs `action` in the next iteration of the event loop. Default: `setImmediate`. */
  readonly nextIteration?: (action: () => void) => void;
}

/**
 * Decides when the TLS handshake of each connection starts. A connection that waits costs little
 * memory and no CPU, so thousands of clients that connect at once wait here for their turn instead
 * of slowing down each other and the calls of connected clients. Clients take turns by address, and
 * each address keeps the order of arrival.
 *
 * Two limits hold. A handshake waits while 64 others are incomplete that started within the last
 * second, or within the last 200 ms when no handshake has completed for so long: clients that never
 * answer delay others only for that time. And at most `maxHandshakes` are incomplete; a new
 * handshake then waits until another completes, or replaces the oldest once the oldest has been
 * incomplete for 5 s, or for 2 s in which no handshake has completed.
 */
export class HandshakeQueue<Connection extends RemoteConnection> {
  private readonly waiting = new FairQueue<Connection>();
  /** Start of each incomplete handshake on the clock. Oldest first. */
  private readonly startedAt = new Map<Connection, number>();
  /** Those of `startedAt` that delay others. Oldest first. */
  private readonly pacing = new Map<Connection, number>();
  /** Time of the last completed handshake on the clock. */
  private completedAt = -Infinity;
  private startsInIteration = 0;
  private isIterationScheduled = false;
  private roomTimer: Timer | undefined;

  constructor(private readonly settings: HandshakeQueueSettings<Connection>) {}

  /** Connections whose handshake is waiting or incomplete. */
  get size(): number {
    return this.waiting.size + this.startedAt.size;
  }

  /** Adds a connection, whose handshake may start before this call returns. */
  add(connection: Connection): void {
    this.waiting.push(keyOf(connection), connection);
    this.startNext();
  }

  /** Removes a connection whose handshake is complete. */
  complete(connection: Connection): void {
    this.completedAt = this.settings.clock.now();
    this.remove(connection);
  }

  /** Removes a connection that is closed. A repeated call has no effect. */
  remove(connection: Connection): void {
    this.pacing.delete(connection);
    if (!this.startedAt.delete(connection)) this.waiting.remove(keyOf(connection), connection);
    else this.startNext();
  }

  /**
   * Returns the connection to close first to make room for a client: the newest of the address with
   * the most waiting connections, unless that is the address of the client; or else the connection
   * with the oldest incomplete handshake. Undefined when there is neither.
   * @param remoteAddress - Address of the client that needs room.
   */
  findLeastUseful(remoteAddress: string): Connection | undefined {
    const [oldest] = this.startedAt.keys();
    return this.waiting.findNewestOfLongest(toPeerKey(remoteAddress)) ?? oldest;
  }

  /** Starts no further handshakes. */
  close(): void {
    this.roomTimer?.cancel();
  }

  private startNext(): void {
    while (this.waiting.size > 0 && this.startsInIteration < STARTS_PER_ITERATION) {
      if (!this.makeRoom()) return;
      const connection = this.waiting.shift(() => true);
      if (connection === undefined) return;
      this.countStart();
      const now = this.settings.clock.now();
      this.startedAt.set(connection, now);
      this.pacing.set(connection, now);
      this.settings.start(connection);
    }
  }

  /** Returns true when one more handshake may be incomplete; otherwise tries again later. */
  private makeRoom(): boolean {
    const waitMs = this.releasePaced() ?? this.replaceOldest();
    if (waitMs === undefined) return true;
    this.roomTimer?.cancel();
    this.roomTimer = this.settings.clock.setTimer(waitMs, () => this.startNext());
    return false;
  }

  /**
   * Lets handshakes that take long no longer delay others.
   * @returns Milliseconds until the next may be released; undefined when fewer than
   *   {@link PACED_HANDSHAKES} delay others.
   */
  private releasePaced(): number | undefined {
    const { pacing } = this;
    for (const [connection, startedAt] of pacing) {
      const waitMs = this.remainingMs(startedAt, UNPACED_AGE_MS);
      if (waitMs > 0) return pacing.size < PACED_HANDSHAKES ? undefined : waitMs;
      pacing.delete(connection);
    }
    return undefined;
  }

  /**
   * Replaces the oldest handshake when too many are incomplete.
   * @returns Milliseconds until the oldest may be replaced; undefined when there is room.
   */
  private replaceOldest(): number | undefined {
    const { maxHandshakes, evict } = this.settings;
    if (this.startedAt.size < maxHandshakes) return undefined;
    const [[oldest, startedAt] = []] = this.startedAt;
    if (oldest === undefined || startedAt === undefined) return undefined;
    const waitMs = this.remainingMs(startedAt, REPLACEABLE_AGE_MS);
    if (waitMs > 0) return waitMs;
    this.startedAt.delete(oldest);
    this.pacing.delete(oldest);
    evict(oldest);
    return undefined;
  }

  /**
   * Returns the milliseconds until a handshake is older than `ages.slow`, or than `ages.stalled`
   * without a completed handshake; 0 or less when it is.
   */
  private remainingMs(
    startedAt: number,
    ages: { readonly slow: number; readonly stalled: number },
  ): number {
    const stalledSince = Math.max(startedAt, this.completedAt);
    const endsAt = Math.min(startedAt + ages.slow, stalledSince + ages.stalled);
    return endsAt - this.settings.clock.now();
  }

  private countStart(): void {
    this.startsInIteration += 1;
    if (this.isIterationScheduled) return;
    this.isIterationScheduled = true;
    (this.settings.nextIteration ?? setImmediate)(() => {
      this.isIterationScheduled = false;
      this.startsInIteration = 0;
      this.startNext();
    });
  }
}

const keyOf = ({ remoteAddress }: RemoteConnection): string => toPeerKey(remoteAddress);
