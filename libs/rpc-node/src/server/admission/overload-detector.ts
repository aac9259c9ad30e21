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
 * Event loop delay at which each level starts, in milliseconds. At the first, people notice it; at
 * the second, waiting for a list takes longer than making it; at the third, a third of a node's
 * lease of 3 s has passed before the server reads its heartbeat.
 */
const LEVELS_MS = [100, 300, 1_000] as const;
/** Time between two samples. */
const SAMPLE_MS = 100;
/**
 * A level needs this many samples in a row: a short burst or one garbage collection is no overload.
 */
const STANDING_SAMPLES = 5;
/** Samples older than this are dropped, unless the event loop was blocked for the whole time. */
const MAX_SAMPLE_AGE_MS = 1_000;

/**
 * Detects a standing delay of the event loop, as CoDel detects a standing queue (RFC 8289): the
 * smallest delay of the recent samples counts, and one good sample ends the overload. Samples only
 * when called, so an idle server sets no timers.
 */
export class OverloadDetector {
  private readonly recent: number[] = [];
  private sampledAt = Number.NEGATIVE_INFINITY;
  private currentLevel: OverloadLevel = 0;

  /** @param getLagMs - The longest delay of the event loop since the last call, in milliseconds. */
  constructor(
    private readonly clock: Clock,
    private readonly getLagMs: () => number,
  ) {}

  getLevel(): OverloadLevel {
    const now = this.clock.now();
    if (now - this.sampledAt < SAMPLE_MS) return this.currentLevel;
    const lag = this.getLagMs();
    if (now - this.sampledAt > MAX_SAMPLE_AGE_MS && lag < MAX_SAMPLE_AGE_MS) this.recent.length = 0;
    this.sampledAt = now;
    this.recent.push(lag);
    if (this.recent.length > STANDING_SAMPLES) this.recent.shift();
    const standing = this.recent.length < STANDING_SAMPLES ? 0 : Math.min(...this.recent);
    return (this.currentLevel = LEVELS_MS.filter((from) => standing >= from)
      .length as OverloadLevel);
  }
}
