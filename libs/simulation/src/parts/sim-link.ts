import { CloudlessError, type Clock } from '@cloudless/base';
import type { SimRandom } from './sim-random.js';

/** Which way something goes: `up` to the coordinator, `down` from it. */
export type Direction = 'up' | 'down';

/** What the network does to single messages of one link. Shares of 1. */
export interface MessageFaults {
  /** Orders that are lost; the protocol sends them again. */
  orderLoss: number;
  /** Orders that come twice. */
  orderDouble: number;
  /** Reports that come twice. */
  reportDouble: number;
  /** Calls whose request is lost. */
  requestLoss: number;
  /** Calls whose answer is lost: they were carried out, and nobody knows. */
  replyLoss: number;
}

/** Something that goes over a link and breaks with it. */
export interface LinkUser {
  /** What was on the way is lost, and nothing passes any more; nobody is told yet. */
  onCut(): void;
  /** The way is free again, or both ends are told at once. */
  onReset(): void;
}

/** Latency of one way, milliseconds. */
const LATENCY_MS = [0.2, 3] as const;

/** The way between one machine and the coordinator. */
export class SimLink {
  readonly faults: MessageFaults = {
    orderLoss: 0,
    orderDouble: 0,
    reportDouble: 0,
    requestLoss: 0,
    replyLoss: 0,
  };
  private readonly freeAt: Record<Direction, number> = { up: 0, down: 0 };
  private readonly users = new Set<LinkUser>();
  private cuts = 0;
  /** When it was last less than perfect, in the time of the world. */
  private troubleUntil = Number.NEGATIVE_INFINITY;

  constructor(
    readonly name: string,
    private readonly time: Clock,
    readonly random: SimRandom,
  ) {}

  /**
   * Nothing passes for so long; then it comes after all, in order. Both ways unless one is named.
   */
  stall(durationMs: number, direction?: Direction): void {
    const until = this.time.now() + durationMs;
    for (const way of direction === undefined ? (['up', 'down'] as const) : [direction]) {
      this.freeAt[way] = Math.max(this.freeAt[way], until);
    }
    this.noteTrouble(until);
  }

  /** Nothing passes for so long, and what is on the way is lost, with the connections it was on. */
  cut(durationMs: number): void {
    this.stall(durationMs);
    const cut = (this.cuts += 1);
    for (const user of [...this.users]) user.onCut();
    this.time.setTimer(durationMs, () => {
      if (cut === this.cuts) this.tellAll();
    });
  }

  /** Every connection breaks, and both ends are told. */
  reset(): void {
    for (const user of [...this.users]) user.onCut();
    this.tellAll();
    this.noteTrouble(this.time.now());
  }

  /** Ends whatever is wrong. */
  heal(): void {
    const now = this.time.now();
    this.freeAt.up = Math.min(this.freeAt.up, now);
    this.freeAt.down = Math.min(this.freeAt.down, now);
    this.cuts += 1;
    this.tellAll();
    for (const fault of Object.keys(this.faults) as (keyof MessageFaults)[]) this.faults[fault] = 0;
    this.noteTrouble(now);
  }

  /** When what is sent now arrives. */
  arrivalOf(direction: Direction): number {
    return Math.max(this.time.now() + this.random.between(...LATENCY_MS), this.freeAt[direction]);
  }

  /** Whether anything passes now. */
  isFree(direction: Direction): boolean {
    return this.freeAt[direction] <= this.time.now();
  }

  /** Whether it has been perfect since then. */
  wasPerfectSince(at: number): boolean {
    return this.troubleUntil < at;
  }

  join(user: LinkUser): void {
    this.users.add(user);
  }

  leave(user: LinkUser): void {
    this.users.delete(user);
  }

  /** Waits as long as something takes to get there. */
  pass(direction: Direction, action: () => void): void {
    const at = this.arrivalOf(direction);
    this.time.setTimer(at - this.time.now(), () => {
      if (this.isFree(direction)) action();
      else this.pass(direction, action);
    });
  }

  private tellAll(): void {
    for (const user of [...this.users]) user.onReset();
  }

  private noteTrouble(until: number): void {
    this.troubleUntil = Math.max(this.troubleUntil, until);
  }
}

/** How the end of a connection shows. */
export function broken(what = 'the connection broke'): CloudlessError {
  return new CloudlessError('unavailable', what);
}

/** One way of a connection: in order, delayed, and a bounded amount at a time, as TCP does. */
export class SimPipe {
  private readonly queue: { readonly arrival: number; readonly action: () => void }[] = [];
  private isMoving = false;
  private isOver = false;
  private roomWaiter: (() => void) | undefined;

  constructor(
    private readonly link: SimLink,
    private readonly direction: Direction,
    private readonly time: Clock,
  ) {}

  /** @param action - Done at the other end. */
  send(action: () => void): void {
    if (this.isOver) return;
    this.queue.push({ arrival: this.link.arrivalOf(this.direction), action });
    this.move();
  }

  /** Whether more may be sent now; otherwise `onRoom` is called once when it may. */
  hasRoom(onRoom: () => void): boolean {
    if (this.queue.length < WINDOW) return true;
    this.roomWaiter = onRoom;
    return false;
  }

  /** What is on the way is lost, and so is all that follows. */
  drop(): void {
    this.isOver = true;
    this.queue.length = 0;
    this.roomWaiter = undefined;
  }

  private move(): void {
    const [first] = this.queue;
    if (this.isMoving || first === undefined) return;
    this.isMoving = true;
    this.time.setTimer(first.arrival - this.time.now(), () => {
      this.isMoving = false;
      if (this.isOver) return;
      if (this.link.isFree(this.direction)) this.deliver();
      else this.queue[0] = { ...first, arrival: this.link.arrivalOf(this.direction) };
      this.move();
    });
  }

  private deliver(): void {
    this.queue.shift()?.action();
    const tell = this.roomWaiter;
    if (tell === undefined || this.queue.length >= WINDOW) return;
    this.roomWaiter = undefined;
    tell();
  }
}

/** Messages on the way at a time: the sender waits beyond, as flow control makes it. */
const WINDOW = 8;
