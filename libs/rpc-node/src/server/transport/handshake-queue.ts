import type { Clock, Timer } from '@cloudless/base';
import { FairQueue } from '../admission/fair-queue.js';
import { toPeerKey } from '../admission/peer-key.js';

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
 * of slowing down each other. Clients take turns by address, and each address keeps the order of
 * arrival. At most `maxHandshakes` are incomplete at a time; a new handshake then waits until
 * another completes, or replaces the oldest once the oldest has been incomplete for 5 s, or for 2 s
 * in which no handshake has completed.
 */
export class HandshakeQueue<Connection extends RemoteConnection> {
  private readonly waiting = new FairQueue<Connection>();
  /** Start of each incomplete handshake on the clock. Oldest first. */
  private readonly startedAt = new Map<Connection, number>();
  /** Time of the last completed handshake on the clock. */
  private completedAt = -Infinity;
  private startsInIteration = 0;
  private isIterationScheduled = false;
  private replaceTimer: Timer | undefined;

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
    this.replaceTimer?.cancel();
  }

  private startNext(): void {
    while (this.waiting.size > 0 && this.startsInIteration < STARTS_PER_ITERATION) {
      if (!this.makeRoom()) return;
      const connection = this.waiting.shift(() => true);
      if (connection === undefined) return;
      this.countStart();
      this.startedAt.set(connection, this.settings.clock.now());
      this.settings.start(connection);
    }
  }

  /** Returns true when one more handshake may be incomplete. */
  private makeRoom(): boolean {
    const { clock, maxHandshakes, evict } = this.settings;
    if (this.startedAt.size < maxHandshakes) return true;
    const [[oldest, startedAt] = []] = this.startedAt;
    if (oldest === undefined || startedAt === undefined) return true;
    const replaceableAt = Math.min(
      startedAt + REPLACEABLE_AGE_MS.slow,
      Math.max(startedAt, this.completedAt) + REPLACEABLE_AGE_MS.stalled,
    );
    const remainingMs = replaceableAt - clock.now();
    if (remainingMs > 0) {
      this.replaceTimer?.cancel();
      this.replaceTimer = clock.setTimer(remainingMs, () => this.startNext());
      return false;
    }
    this.startedAt.delete(oldest);
    evict(oldest);
    return true;
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
