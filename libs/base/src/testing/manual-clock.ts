import type { Clock, Timer } from '../time/clock.js';
import { TimerHeap, type HeapTimer } from './timer-heap.js';

/**
 * Virtual clock: time moves only when a test calls {@link advance} or {@link step}. Timers fire in
 * the order of deadline, then of creation, and all pending promises run between two timers.
 */
export class ManualClock implements Clock {
  private time = 0;
  private createdTimers = 0;
  private readonly timers = new TimerHeap();

  /** @param epochMs - Wall time when monotonic time is 0. Default: 2026-01-01. */
  constructor(private readonly epochMs = Date.UTC(2026, 0, 1)) {}

  now(): number {
    return this.time;
  }

  /** Returns whole milliseconds, as a real clock does. */
  wallTime(): number {
    return Math.floor(this.epochMs + this.time);
  }

  setTimer(delayMs: number, action: () => void): Timer {
    const timer: HeapTimer = {
      at: this.time + Math.max(0, delayMs),
      order: this.createdTimers++,
      action,
    };
    this.timers.add(timer);
    return { cancel: () => this.timers.cancel(timer) };
  }

  /** Number of timers that are set and not cancelled. */
  get pendingTimers(): number {
    return this.timers.size;
  }

  /**
   * Advances time by `durationMs` and fires the timers that are due. A negative duration counts as
   * 0. Two overlapping calls end at the later of their ends, so time never goes back.
   */
  async advance(durationMs: number): Promise<void> {
    const until = this.time + Math.max(0, durationMs);
    await settle();
    while (await this.step(until));
    this.time = Math.max(this.time, until);
  }

  /**
   * Moves time forward by `durationMs` and fires no timer, as on a machine that was suspended: timers
   * that became due fire late, in the next {@link advance} or {@link step}. Periodic timers fire once
   * then, so that days take no longer than seconds.
   */
  suspend(durationMs: number): void {
    this.time += Math.max(0, durationMs);
  }

  /**
   * Advances time to the next timer that is due by `untilMs`, and fires it.
   * @returns False, with the time unchanged, when no timer is due.
   */
  async step(untilMs: number): Promise<boolean> {
    const dueTimer = this.timers.removeDue(untilMs);
    if (dueTimer === undefined) return false;
    this.time = Math.max(this.time, dueTimer.at);
    dueTimer.action();
    await settle();
    return true;
  }
}

/**
 * Declared here because this library compiles without platform types. `nextTick` runs `action` when
 * no promise can continue.
 */
declare const process: { nextTick(action: () => void): void };

/** Runs all promises that can continue without time passing, however long their chains are. */
export function settle(): Promise<void> {
  // Within a promise continuation, Node.js runs a nextTick callback only when the queue of all
  // other continuations is empty.
  return Promise.resolve().then(() => new Promise((resolve) => process.nextTick(resolve)));
}
