import type { Clock, Timer } from '@cloudless/base';
import { RESEND_MS } from './agent-session.js';

/**
 * Number of turns in which each session looks once at all its replicas. No order is expected to be
 * found; the look costs little at this interval. Every turn has its share of the sessions, because
 * a look at a million replicas takes half a second.
 */
const TRACK_ALL_EVERY = 60;

/** The part of a session that {@link OrderResends} needs. */
interface ResendingSession {
  readonly hasEnded: boolean;
  readonly hasOpenOrders: boolean;
  resendOrders(): void;
  trackAllOrders(): void;
}

/**
 * Every {@link RESEND_MS}, makes sessions repeat the orders that their agents have not
 * acknowledged. Visits only sessions that have such orders: a few of thousands.
 */
export class OrderResends {
  private readonly open = new Set<ResendingSession>();
  private timer: Timer | undefined;
  /** Milliseconds by which the timers were late, in all. */
  private lateMs = 0;
  private turns = 0;
  /** Sessions that look at all their replicas in the following turns. */
  private looking: ResendingSession[] = [];

  /**
   * @param sessions - All sessions, by node id.
   * @param onTurn - Called after each turn.
   */
  constructor(
    private readonly clock: Clock,
    private readonly sessions: ReadonlyMap<string, ResendingSession>,
    private readonly onTurn: () => void,
  ) {}

  start(): void {
    const dueAtMs = this.clock.now() + RESEND_MS;
    this.timer = this.clock.setTimer(RESEND_MS, () => {
      this.lateMs += Math.max(0, this.clock.now() - dueAtMs);
      this.resend();
      this.onTurn();
      this.start();
    });
  }

  close(): void {
    this.timer?.cancel();
  }

  /**
   * Returns the monotonic time without the time for which the main loop stood still: what agents
   * sent meanwhile has not been read yet.
   */
  runningTimeMs(): number {
    return this.clock.now() - this.lateMs;
  }

  /** Adds a session if it has orders to send again. Call it after each change of its orders. */
  note(session: ResendingSession): void {
    if (session.hasOpenOrders && !session.hasEnded) this.open.add(session);
  }

  /** Removes a session that has ended. */
  remove(session: ResendingSession): void {
    this.open.delete(session);
  }

  /** Lets every session look at all its replicas for orders that are not acknowledged. */
  trackAll(): void {
    for (const session of this.sessions.values()) this.lookAtAll(session);
  }

  private lookAtAll(session: ResendingSession): void {
    session.trackAllOrders();
    this.note(session);
  }

  private resend(): void {
    this.turns += 1;
    const turn = this.turns % TRACK_ALL_EVERY;
    if (turn === 0) this.looking = [...this.sessions.values()];
    const share = Math.ceil(this.looking.length / (TRACK_ALL_EVERY - turn));
    for (const session of this.looking.splice(0, share))
      if (!session.hasEnded) this.lookAtAll(session);
    for (const session of this.open) {
      session.resendOrders();
      if (!session.hasOpenOrders) this.open.delete(session);
    }
  }
}
