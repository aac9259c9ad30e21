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
 * Longest pause: the longest delay of a replacement or of the next step of a rollout, when hundreds
 * of workloads change at the same time.
 */
const MAX_PAUSE_MS = 1_000;
/**
 * The pause may be longer than {@link MAX_PAUSE_MS}, up to this multiple of the passes of all
 * pausing workloads. These take a third of a core then: the passes over a thousand workloads of a
 * thousand replicas take seconds, and would otherwise leave nothing for other work.
 */
const ROUND_FACTOR = 2;
/** Longest pause of a workload while no other workload pauses. */
const MAX_SINGLE_PAUSE_MS = 250;

/** The pause of one workload after a pass. */
interface Pause {
  /** On the monotonic clock. */
  readonly endMs: number;
  /** Duration of the pass, milliseconds. */
  readonly durationMs: number;
}

/**
 * Limits the share of time that passes over large workloads take. A pass looks at every replica,
 * and thousands of replicas start, or are lost, one after the other: with one pass for each change,
 * the work would grow with the square of their number. A pass that has work left causes no pause,
 * and {@link skipPause} ends the pause for changes that users made.
 */
export class PassPacing {
  /** By workload; the ends are almost in order. */
  private readonly pauses = new Map<string, Pause>();
  /** Sum of the durations of the passes before {@link pauses}, milliseconds. */
  private roundMs = 0;

  constructor(private readonly clock: Pick<Clock, 'now'>) {}

  /** Number of workloads that are remembered. */
  get size(): number {
    return this.pauses.size;
  }

  /** Returns the milliseconds until the next pass over a workload may begin. */
  getWaitMs(uid: string): number {
    const pause = this.pauses.get(uid);
    if (pause === undefined) return 0;
    const waitMs = pause.endMs - this.clock.now();
    if (waitMs > 0) return waitMs;
    this.forget(uid, pause);
    return 0;
  }

  /** Lets the next pass over a workload begin at once. */
  skipPause(uid: string): void {
    const pause = this.pauses.get(uid);
    if (pause !== undefined) this.forget(uid, pause);
  }

  /**
   * Starts the pause after a pass without work left.
   * @param durationMs - For how long the pass kept the main loop.
   */
  recordPass(uid: string, durationMs: number): void {
    if (durationMs < PACED_FROM_MS) return;
    const now = this.clock.now();
    this.skipPause(uid);
    this.forgetEnded(now);
    const others = this.pauses.size;
    const roundMs = this.roundMs + durationMs;
    const longestMs =
      others === 0 ? MAX_SINGLE_PAUSE_MS : Math.max(MAX_PAUSE_MS, ROUND_FACTOR * roundMs);
    const pauseMs = Math.max(MIN_PAUSE_MS, PAUSE_FACTOR * durationMs * (1 + others));
    this.pauses.set(uid, { endMs: now + Math.min(longestMs, pauseMs), durationMs });
    this.roundMs = roundMs;
  }

  /** Forgets the oldest pauses that have ended. */
  private forgetEnded(now: number): void {
    for (const [uid, pause] of this.pauses) {
      if (pause.endMs > now) return;
      this.forget(uid, pause);
    }
  }

  private forget(uid: string, { durationMs }: Pause): void {
    this.pauses.delete(uid);
    this.roundMs = this.pauses.size === 0 ? 0 : this.roundMs - durationMs;
  }
}
