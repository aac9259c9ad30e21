import type { Clock } from '../time/clock.js';

export interface ThrottleOptions {
  readonly clock: Clock;
  /** Number of events per key that may pass at once, at least 1. */
  readonly burst: number;
  /**
   * After a burst, one further event per key may pass in each interval of this length,
   * milliseconds.
   */
  readonly everyMs: number;
  /**
   * Number of keys to remember. The least recently used key is forgotten first and then starts with
   * a full burst. Default: 1 000.
   */
  readonly maxKeys?: number;
}

/** Result of {@link Throttle.take}: pass or suppress. */
export type ThrottleResult =
  | { readonly passes: true; readonly left: SuppressedEvents | undefined }
  /** The event is suppressed; `waitMs` until the next event may pass. */
  | { readonly passes: false; readonly waitMs: number };

/** Events that were suppressed since the last one that passed. */
export interface SuppressedEvents {
  readonly count: number;
  /** Wall-clock milliseconds of the first suppressed event. */
  readonly sinceMs: number;
}

interface Bucket {
  tokens: number;
  atMs: number;
  left: { count: number; readonly sinceMs: number } | undefined;
}

/**
 * Token-bucket rate limiter per key that counts what it suppresses. For log lines and events that a
 * client could trigger without end.
 */
export class Throttle {
  private readonly buckets = new Map<string, Bucket>();

  constructor(private readonly options: ThrottleOptions) {}

  /** Records an event of `key` and returns whether the event passes. */
  take(key: string): ThrottleResult {
    const { clock, everyMs } = this.options;
    const bucket = this.bucketOf(key);
    if (bucket.tokens >= 1) {
      bucket.tokens -= 1;
      const { left } = bucket;
      bucket.left = undefined;
      return { passes: true, left };
    }
    bucket.left ??= { count: 0, sinceMs: clock.wallTime() };
    bucket.left.count += 1;
    return { passes: false, waitMs: Math.ceil((1 - bucket.tokens) * everyMs) };
  }

  forget(key: string): void {
    this.buckets.delete(key);
  }

  private bucketOf(key: string): Bucket {
    const { clock, burst, everyMs, maxKeys = 1_000 } = this.options;
    const now = clock.now();
    const known = this.buckets.get(key);
    const bucket = known ?? { tokens: burst, atMs: now, left: undefined };
    bucket.tokens = Math.min(burst, bucket.tokens + (now - bucket.atMs) / everyMs);
    bucket.atMs = now;
    this.buckets.delete(key); // move to the end: most recently used
    this.buckets.set(key, bucket);
    const [oldest] = this.buckets.keys();
    if (this.buckets.size > maxKeys && oldest !== undefined) this.buckets.delete(oldest);
    return bucket;
  }
}
