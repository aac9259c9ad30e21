import type { Clock } from '@cloudless/base';

/**
 * How far behind the process is.
 * - 0: it keeps up.
 * - 1: who asks for more than one read at a time is refused the rest.
 * - 2: reads are refused.
 * - 3: reads and writes are refused.
 */
export type OverloadLevel = 0 | 1 | 2 | 3;

/**
 * The delay of the event loop at which each level begins, in milliseconds. A person notices the
 * first; the second is where a list takes longer to wait for than to make; at the third a third of
 * a node's lease of 3 s has passed before its heartbeat is read.
 */
const LEVELS_MS = [100, 300, 1_000] as const;
/** Between two looks. */
const SAMPLE_MS = 100;
/**
 * A level needs this many looks in a row: a burst that is worked off, or one garbage collection, is
 * no overload.
 */
const STANDING = 5;
/**
 * After this long without a call what was seen before it says nothing, unless the loop stood still
 * all the while.
 */
const FORGET_MS = 1_000;

/**
 * Tells a standing delay from a passing one, as CoDel does for routers (RFC 8289): what counts is
 * the smallest delay of the last looks, and a single good one ends the overload. It looks when it
 * is asked, so a server at rest sets no timers.
 */
export class OverloadMeter {
  private readonly recent: number[] = [];
  private lookedAt = Number.NEGATIVE_INFINITY;
  private current: OverloadLevel = 0;

  /** @param lagMs - The longest delay of the event loop since the last call, in milliseconds. */
  constructor(
    private readonly clock: Clock,
    private readonly lagMs: () => number,
  ) {}

  level(): OverloadLevel {
    const now = this.clock.now();
    if (now - this.lookedAt < SAMPLE_MS) return this.current;
    const lag = this.lagMs();
    if (now - this.lookedAt > FORGET_MS && lag < FORGET_MS) this.recent.length = 0;
    this.lookedAt = now;
    this.recent.push(lag);
    if (this.recent.length > STANDING) this.recent.shift();
    const standing = this.recent.length < STANDING ? 0 : Math.min(...this.recent);
    return (this.current = LEVELS_MS.filter((from) => standing >= from).length as OverloadLevel);
  }
}
