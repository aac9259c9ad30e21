import { CloudlessError, type Clock } from '@cloudless/base';
import type { SimRandom } from './sim-random.js';

/** Direction of traffic: `up` to the coordinator, `down` from the coordinator. */
export type Direction = 'up' | 'down';

/** Faults of single messages on one link, as probabilities from 0 to 1. */
export interface MessageFaults {
  /** Orders that are lost; the protocol sends them again. */
  orderLoss: number;
  /** Orders that arrive twice. */
  orderDouble: number;
  /** Reports that arrive twice. */
  reportDouble: number;
  /** Calls whose request is lost. */
  requestLoss: number;
  /** Calls that take effect and whose response is lost. */
  replyLoss: number;
}

/** A user of a link, for example a connection. */
export interface LinkUser {
  /** Called when messages in flight are lost and nothing passes any more. Both ends stay open. */
  onCut(): void;
  /** Called when the link is free again after a cut, or when both ends receive a reset. */
  onReset(): void;
}

/** Shortest and longest one-way latency, milliseconds. */
const LATENCY_MS = [0.2, 3] as const;

/** The network link between one machine and the coordinator. */
export class SimLink {
  private readonly freeAt: Record<Direction, number> = { up: 0, down: 0 };
  private readonly users = new Set<LinkUser>();
  private cuts = 0;
  /** End of the last disturbance, in the time of the world. */
  private disturbedUntil = Number.NEGATIVE_INFINITY;

  constructor(
    readonly name: string,
    private readonly time: Clock,
    readonly random: SimRandom,
    readonly faults: MessageFaults = {
      orderLoss: 0,
      orderDouble: 0,
      reportDouble: 0,
      requestLoss: 0,
      replyLoss: 0,
    },
  ) {}

  /** Returns the link to one of several coordinators; with one coordinator, this link. */
  to(_address: string): SimLink {
    return this;
  }

  /**
   * Delays all traffic for this duration; messages arrive afterwards in order.
   * @param direction - Default: both directions.
   */
  stall(durationMs: number, direction?: Direction): void {
    const until = this.time.now() + durationMs;
    for (const way of direction === undefined ? (['up', 'down'] as const) : [direction]) {
      this.freeAt[way] = Math.max(this.freeAt[way], until);
    }
    this.recordDisturbance(until);
  }

  /** Blocks all traffic for this duration; messages in flight and their connections are lost. */
  cut(durationMs: number): void {
    this.stall(durationMs);
    const cut = (this.cuts += 1);
    for (const user of [...this.users]) user.onCut();
    this.time.setTimer(durationMs, () => {
      if (cut === this.cuts) this.notifyAll();
    });
  }

  /** Breaks every connection, and both ends notice at once. */
  reset(): void {
    for (const user of [...this.users]) user.onCut();
    this.notifyAll();
    this.recordDisturbance(this.time.now());
  }

  /** Ends all faults of the link. */
  heal(): void {
    const now = this.time.now();
    this.freeAt.up = Math.min(this.freeAt.up, now);
    this.freeAt.down = Math.min(this.freeAt.down, now);
    this.cuts += 1;
    this.notifyAll();
    for (const fault of Object.keys(this.faults) as (keyof MessageFaults)[]) this.faults[fault] = 0;
    this.recordDisturbance(now);
  }

  /** Returns the arrival time of a message that is sent now. */
  arrivalOf(direction: Direction): number {
    return Math.max(this.time.now() + this.random.between(...LATENCY_MS), this.freeAt[direction]);
  }

  /** Returns true when traffic can pass now. */
  isFree(direction: Direction): boolean {
    return this.freeAt[direction] <= this.time.now();
  }

  /** Returns true when the link had no fault since `at`, a time of the world. */
  wasPerfectSince(at: number): boolean {
    return this.disturbedUntil < at;
  }

  join(user: LinkUser): void {
    this.users.add(user);
  }

  leave(user: LinkUser): void {
    this.users.delete(user);
  }

  /** Runs `action` after the one-way latency. */
  transmit(direction: Direction, action: () => void): void {
    const at = this.arrivalOf(direction);
    this.time.setTimer(at - this.time.now(), () => {
      if (this.isFree(direction)) action();
      else this.transmit(direction, action);
    });
  }

  private notifyAll(): void {
    for (const user of [...this.users]) user.onReset();
  }

  private recordDisturbance(until: number): void {
    this.disturbedUntil = Math.max(this.disturbedUntil, until);
  }
}

/** The error that both ends of a broken connection see. */
export function connectionError(message = 'the connection broke'): CloudlessError {
  return new CloudlessError('unavailable', message);
}

/**
 * One direction of a connection: ordered, delayed, and with a bounded amount in flight, as with
 * TCP.
 */
export class SimPipe {
  private readonly queue: { readonly arrival: number; readonly action: () => void }[] = [];
  private isMoving = false;
  private isDropped = false;
  /** Streams that wait until more may be sent, in the order of their requests. */
  private readonly waiting: (() => void)[] = [];

  constructor(
    private readonly link: SimLink,
    private readonly direction: Direction,
    private readonly time: Clock,
  ) {}

  /** @param action - Runs at the other end. */
  send(action: () => void): void {
    if (this.isDropped) return;
    this.queue.push({ arrival: this.link.arrivalOf(this.direction), action });
    this.move();
  }

  /**
   * Returns true when more may be sent now; otherwise calls `onSendable` once as soon as it may.
   * Several streams may wait at the same time.
   */
  canSend(onSendable: () => void): boolean {
    if (this.queue.length < WINDOW) return true;
    this.waiting.push(onSendable);
    return false;
  }

  /** Loses everything in flight and everything sent later. */
  drop(): void {
    this.isDropped = true;
    this.queue.length = 0;
    this.waiting.length = 0;
  }

  private move(): void {
    const [first] = this.queue;
    if (this.isMoving || first === undefined) return;
    this.isMoving = true;
    this.time.setTimer(first.arrival - this.time.now(), () => {
      this.isMoving = false;
      if (this.isDropped) return;
      if (this.link.isFree(this.direction)) this.deliver();
      else this.queue[0] = { ...first, arrival: this.link.arrivalOf(this.direction) };
      this.move();
    });
  }

  private deliver(): void {
    this.queue.shift()?.action();
    if (this.queue.length < WINDOW) for (const notify of this.waiting.splice(0)) notify();
  }
}

/** Messages in flight at which flow control stops the sender. Small, so that worlds reach it. */
const WINDOW = 8;
