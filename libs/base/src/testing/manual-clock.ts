import type { Clock, Timer } from '../clock.js';
import { TimerHeap, type HeapTimer } from './timer-heap.js';

/**
 * Virtual time: nothing happens until the test moves it. Timers fire by (deadline, creation), and
 * every promise that can run does so between two of them.
 */
export class ManualClock implements Clock {
  private time = 0;
  private count = 0;
  private readonly timers = new TimerHeap();

  /** @param epochMs - What `wallTime` says at the origin. */
  constructor(private readonly epochMs = Date.UTC(2026, 0, 1)) {}

  now(): number {
    return this.time;
  }

  /** Whole, as that of a machine. */
  wallTime(): number {
    return Math.floor(this.epochMs + this.time);
  }

  setTimer(delayMs: number, action: () => void): Timer {
    const timer: HeapTimer = { at: this.time + Math.max(0, delayMs), order: this.count++, action };
    this.timers.add(timer);
    return { cancel: () => this.timers.cancel(timer) };
  }

  /** How many timers are set and not cancelled. */
  get pendingTimers(): number {
    return this.timers.size;
  }

  /**
   * Moves time by `durationMs` (0 or more), firing what falls due on the way. Two that overlap end
   * where the farther one ends: time never goes back.
   */
  async advance(durationMs: number): Promise<void> {
    const until = this.time + Math.max(0, durationMs);
    await settle();
    while (await this.step(until));
    this.time = Math.max(this.time, until);
  }

  /**
   * Moves time to the next timer that is due by `untilMs`, and fires it.
   * @returns False, and the time as it was, when there is none.
   */
  async step(untilMs: number): Promise<boolean> {
    const due = this.timers.takeDue(untilMs);
    if (due === undefined) return false;
    this.time = Math.max(this.time, due.at);
    due.action();
    await settle();
    return true;
  }
}

/** Of the platform, which this library does not know: runs `action` once no promise can go on. */
declare const process: { nextTick(action: () => void): void };

/** Lets every promise run that can run without time passing, however deep their chains. */
export function settle(): Promise<void> {
  // From within a promise's continuation, Node.js runs a tick only once the queue of all others is
  // empty.
  return Promise.resolve().then(() => new Promise((resolve) => process.nextTick(resolve)));
}
