import type { Clock } from '@cloudless/base';

/** Shorter passes are not paced. */
const PACED_FROM_MS = 2;
/** Pause after a pass, as a multiple of its duration: a workload takes at most a quarter of a core. */
const PAUSE_FACTOR = 3;
/** Pauses that are kept before those that have ended are forgotten: those of deleted workloads. */
const MAX_KEPT = 256;
/** Longest pause: the longest delay of a replacement or of the next step of a rollout. */
const MAX_PAUSE_MS = 250;

/**
 * Limits the share of time that passes over one large workload take. A pass looks at every replica,
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
    const nowMs = this.clock.now();
    if (this.pauseEndMs.size >= MAX_KEPT)
      for (const [id, endMs] of this.pauseEndMs) if (endMs <= nowMs) this.pauseEndMs.delete(id);
    this.pauseEndMs.set(uid, nowMs + Math.min(MAX_PAUSE_MS, PAUSE_FACTOR * durationMs));
  }
}
