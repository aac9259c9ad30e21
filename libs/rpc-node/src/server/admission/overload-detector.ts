import type { Clock } from '@cloudless/base';

/**
 * Degree of overload.
 * - 0: none.
 * - 1: a client that has a read running or waiting gets further reads refused.
 * - 2: all reads are refused.
 * - 3: reads and writes are refused.
 */
export type OverloadLevel = 0 | 1 | 2 | 3;

/**
 * Event loop delay at which levels 1, 2 and 3 start, in milliseconds. A delay of 100 ms can be
 * noticed by users. At 300 ms, a list call waits longer than its handler takes. At 1 s, a third of
 * the lease of a node (3 s) has passed before the server reads the heartbeat.
 */
const LEVELS_MS = [100, 300, 1_000] as const;
/** Shortest time between two samples. */
const SAMPLE_MS = 100;
/**
 * Samples in a row that a level needs, because a short burst or one garbage collection is no
 * overload.
 */
const STANDING_SAMPLES = 5;
/** Older samples are dropped, unless the event loop was blocked for all of that time. */
const MAX_SAMPLE_AGE_MS = 1_000;

/**
 * Detects a standing delay of the event loop, as CoDel detects a standing queue (RFC 8289): the
 * smallest delay of the last five samples counts, so one good sample ends the overload. Samples
 * only when called, so an idle server sets no timers.
 */
export class OverloadDetector {
  private readonly recentLagsMs: number[] = [];
  private sampledAt = Number.NEGATIVE_INFINITY;
  private currentLevel: OverloadLevel = 0;

  /** @param getLagMs - Returns the longest delay of the event loop since its last call. */
  constructor(
    private readonly clock: Clock,
    private readonly getLagMs: () => number,
  ) {}

  /** Takes a sample if one is due, and returns the current level. */
  getLevel(): OverloadLevel {
    const now = this.clock.now();
    if (now - this.sampledAt < SAMPLE_MS) return this.currentLevel;
    const lagMs = this.getLagMs();
    if (now - this.sampledAt > MAX_SAMPLE_AGE_MS && lagMs < MAX_SAMPLE_AGE_MS)
      this.recentLagsMs.length = 0;
    this.sampledAt = now;
    this.recentLagsMs.push(lagMs);
    if (this.recentLagsMs.length > STANDING_SAMPLES) this.recentLagsMs.shift();
    const standingMs =
      this.recentLagsMs.length < STANDING_SAMPLES ? 0 : Math.min(...this.recentLagsMs);
    return (this.currentLevel = LEVELS_MS.filter((levelMs) => standingMs >= levelMs)
      .length as OverloadLevel);
  }
}
