import type { Clock, Timer } from '../clock.js';

interface Entry extends Timer {
  readonly at: number;
  readonly order: number;
  readonly action: () => void;
  cancelled: boolean;
}

/**
 * Virtual time: nothing happens until the test moves it. Timers fire by (deadline, creation), and every promise that can
 * run does so between two of them.
 */
export class ManualClock implements Clock {
  private time = 0;
  private order = 0;
  private timers: Entry[] = [];

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
      order: this.order++,
      action,
      cancelled: false,
      cancel: () => {
        entry.cancelled = true;
      },
    };
    this.timers.push(entry);
    return entry;
  }

  /** How many timers are set and not cancelled. */
  get pendingTimers(): number {
    return this.timers.filter((timer) => !timer.cancelled).length;
  }

  /** Moves time by `durationMs`, firing what falls due on the way. */
  async advance(durationMs: number): Promise<void> {
    const until = this.time + durationMs;
    await settle();
    for (;;) {
      this.timers = this.timers.filter((timer) => !timer.cancelled);
      const due = this.timers.filter((timer) => timer.at <= until).sort((a, b) => a.at - b.at || a.order - b.order)[0];
      if (due === undefined) break;
      this.timers.splice(this.timers.indexOf(due), 1);
      this.time = Math.max(this.time, due.at);
      due.action();
      await settle();
    }
    this.time = until;
  }
}

/** Lets every promise run that can run without time passing. */
export async function settle(): Promise<void> {
  for (let turn = 0; turn < SETTLE_TURNS; turn += 1) await Promise.resolve();
}

/** Deeper chains of awaits than this do not occur between two timers of our code. */
const SETTLE_TURNS = 200;
