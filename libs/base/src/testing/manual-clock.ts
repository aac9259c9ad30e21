import type { Clock, Timer } from '../clock.js';

interface Entry extends Timer {
  readonly at: number;
  readonly action: () => void;
}

/**
 * Virtual time: nothing happens until the test moves it. Timers fire by (deadline, creation), and every promise that can
 * run does so between two of them.
 */
export class ManualClock implements Clock {
  private time = 0;
  private readonly timers = new Set<Entry>();

  /** @param epochMs - What `wallTime` says at the origin. */
  constructor(private readonly epochMs = Date.UTC(2026, 0, 1)) {}

  now(): number {
    return this.time;
  }

  wallTime(): number {
    return this.epochMs + this.time;
  }

  setTimer(delayMs: number, action: () => void): Timer {
    const entry: Entry = {
      at: this.time + Math.max(0, delayMs),
      action,
      cancel: () => this.timers.delete(entry),
    };
    this.timers.add(entry);
    return entry;
  }

  /** How many timers are set and not cancelled. */
  get pendingTimers(): number {
    return this.timers.size;
  }

  /**
   * Moves time by `durationMs` (0 or more), firing what falls due on the way. Two that overlap end where the farther one ends:
   * time never goes back.
   */
  async advance(durationMs: number): Promise<void> {
    const until = this.time + Math.max(0, durationMs);
    await settle();
    for (let due = this.nextDue(until); due !== undefined; due = this.nextDue(until)) {
      this.timers.delete(due);
      this.time = Math.max(this.time, due.at);
      due.action();
      await settle();
    }
    this.time = Math.max(this.time, until);
  }

  /** The set keeps the order of creation, so the first of equal deadlines is the oldest. */
  private nextDue(until: number): Entry | undefined {
    let next: Entry | undefined;
    for (const timer of this.timers) {
      if (timer.at <= until && (next === undefined || timer.at < next.at)) next = timer;
    }
    return next;
  }
}

/** Lets every promise run that can run without time passing. */
export async function settle(): Promise<void> {
  for (let turn = 0; turn < SETTLE_TURNS; turn += 1) await Promise.resolve();
}

/** Deeper chains of awaits than this do not occur between two timers of our code. */
const SETTLE_TURNS = 200;
