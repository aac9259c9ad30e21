import type { Clock, Timer } from '../time/clock.js';
import { TimerHeap, type HeapTimer } from './timer-heap.js';

/**
 * Virtual clock: time moves only when a test advances it. Timers fire by (deadline, creation), and
 * all pending promises run between two timers.
 */
export class ManualClock implements Clock {
  private time = 0;
  private count = 0;
  private readonly timers = new TimerHeap();

  /** @param epochMs - Wall time at the origin. */
  constructor(private readonly epochMs = Date.UTC(2026, 0, 1)) {}

  now(): number {
    return this.time;
  }

  /** Whole milliseconds, as on a real machine. */
  wallTime(): number {
    return Math.floor(this.epochMs + this.time);
  }

  setTimer(delayMs: number, action: () => void): Timer {
    const timer: HeapTimer = { at: this.time + Math.max(0, delayMs), order: this.count++, action };
    this.timers.add(timer);
    return { cancel: () => this.timers.cancel(timer) };
  }

  /** Number of timers that are set and not cancelled. */
  get pendingTimers(): number {
    return this.timers.size;
  }

  /**
   * Advances time by `durationMs` (at least 0) and fires the timers that are due. Two overlapping
   * calls end at the later of their ends: time never goes back.
   */
  async advance(durationMs: number): Promise<void> {
    const until = this.time + Math.max(0, durationMs);
    await settle();
    while (await this.step(until));
    this.time = Math.max(this.time, until);
  }

  /**
   * Advances time to the next timer that is due by `untilMs`, and fires it.
   * @returns False, with the time unchanged, when no timer is due.
   */
  async step(untilMs: number): Promise<boolean> {
    const due = this.timers.removeDue(untilMs);
    if (due === undefined) return false;
    this.time = Math.max(this.time, due.at);
    due.action();
    await settle();
    return true;
  }
}

/**
 * Declared here because this library compiles without platform types: runs `action` when no promise
 * can continue.
 */
declare const process: { nextTick(action: () => void): void };

/** Runs all promises that can continue without time passing, however long their chains are. */
export function settle(): Promise<void> {
  // Within a promise continuation, Node.js runs a nextTick callback only when the queue of all
  // other continuations is empty.
  return Promise.resolve().then(() => new Promise((resolve) => process.nextTick(resolve)));
}
