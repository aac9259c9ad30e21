import type { Clock } from '@cloudless/base';

/** Shorter passes are not paced. */
const PACED_FROM_MS = 0.25;
/**
 * Pause after a pass, as a multiple of its duration and of the number of pausing workloads: the
 * passes of all paused workloads together take a seventh of a core, and more only when
 * {@link MAX_PAUSE_MS} shortens their pauses.
 */
const PAUSE_FACTOR = 6;
/**
 * Shortest pause. Short compared with the start of a container, and long enough that a pass sees the
 * changes of several commits.
 */
const MIN_PAUSE_MS = 10;
/**
 * Longest pause: the longest delay of a replacement or of the next step of a rollout, when a
 * thousand workloads of a thousand replicas change at the same time. With a shorter limit, their
 * passes would take all of a core.
 */
const MAX_PAUSE_MS = 5_000;
/** Longest pause of a workload while no other workload pauses. */
const MAX_SINGLE_PAUSE_MS = 250;

/**
 * Limits the share of time that passes over large workloads take. A pass looks at every replica,
 * and thousands of replicas start, or are lost, one after the other: with one pass for each change,
 * the work would grow with the square of their number. A pass that has work left causes no pause,
 * and {@link skipPause} ends the pause for changes that users made.
 */
export class PassPacing {
  /** End of the pause of each workload, on the monotonic clock. */
  private readonly pauseEndMs = new Map<string, number>();

  constructor(private readonly clock: Pick<Clock, 'now'>) {}

  /** Number of workloads that are remembered. */
  get size(): number {
    return this.pauseEndMs.size;
  }

  /** Returns the milliseconds until the next pass over a workload may begin. */
  getWaitMs(uid: string): number {
    const endMs = this.pauseEndMs.get(uid);
    if (endMs === undefined) return 0;
    const waitMs = endMs - this.clock.now();
    if (waitMs > 0) return waitMs;
    this.pauseEndMs.delete(uid);
    return 0;
  }

  /** Lets the next pass over a workload begin at once. */
  skipPause(uid: string): void {
    this.pauseEndMs.delete(uid);
  }

  /**
   * Starts the pause after a pass without work left.
   * @param durationMs - For how long the pass kept the main loop.
   */
  recordPass(uid: string, durationMs: number): void {
    if (durationMs < PACED_FROM_MS) return;
    const now = this.clock.now();
    const others = this.countPausing(now);
    const longestMs = others === 0 ? MAX_SINGLE_PAUSE_MS : MAX_PAUSE_MS;
    const pauseMs = Math.max(MIN_PAUSE_MS, PAUSE_FACTOR * durationMs * (1 + others));
    // The workload moves to the end: the ends of the pauses are almost in order.
    this.pauseEndMs.delete(uid);
    this.pauseEndMs.set(uid, now + Math.min(longestMs, pauseMs));
  }

  /** Counts the workloads that pause. Forgets the oldest pauses that have ended. */
  private countPausing(now: number): number {
    for (const [uid, endMs] of this.pauseEndMs) {
      if (endMs > now) break;
      this.pauseEndMs.delete(uid);
    }
    return this.pauseEndMs.size;
  }
}
