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
   * Number of keys to remember; up to an eighth more are kept for a while. The least recently used
   * keys are forgotten first and then start with a full burst. Default: 1 000.
   */
  readonly maxKeys?: number;
}

/** Result of {@link Throttle.take}: pass or suppress. */
export type ThrottleResult =
  /** The event passes; `suppressed` has the events of the key that were suppressed before, if any. */
  | { readonly passes: true; readonly suppressed: SuppressedEvents | undefined }
  /** The event is suppressed; the next event of the key may pass after `waitMs`. */
  | { readonly passes: false; readonly waitMs: number };

/** The events that were suppressed since the last event that passed. */
export interface SuppressedEvents {
  readonly count: number;
  /** Wall-clock milliseconds of the first suppressed event. */
  readonly sinceMs: number;
}

interface Bucket {
  /** Events that may pass now; fractions grow with time. */
  tokens: number;
  /** Time at which `tokens` was computed. */
  atMs: number;
  suppressed: { count: number; readonly sinceMs: number } | undefined;
}

/**
 * Token-bucket rate limiter per key that counts the events it suppresses. For log lines and events
 * that a client could trigger without end.
 */
export class Throttle {
  private readonly buckets = new Map<string, Bucket>();

  constructor(private readonly options: ThrottleOptions) {}

  /** Records an event of `key` and returns whether the event passes. */
  take(key: string): ThrottleResult {
    const { clock, everyMs } = this.options;
    const bucket = this.refillBucket(key);
    if (bucket.tokens >= 1) {
      bucket.tokens -= 1;
      const { suppressed } = bucket;
      bucket.suppressed = undefined;
      return { passes: true, suppressed };
    }
    bucket.suppressed ??= { count: 0, sinceMs: clock.wallTime() };
    bucket.suppressed.count += 1;
    return { passes: false, waitMs: Math.ceil((1 - bucket.tokens) * everyMs) };
  }

  /** Drops the state of a key, which then starts with a full burst. */
  forget(key: string): void {
    this.buckets.delete(key);
  }

  private refillBucket(key: string): Bucket {
    const { clock, burst, everyMs, maxKeys = 1_000 } = this.options;
    const now = clock.now();
    const known = this.buckets.get(key);
    const bucket = known ?? { tokens: burst, atMs: now, suppressed: undefined };
    bucket.tokens = Math.min(burst, bucket.tokens + (now - bucket.atMs) / everyMs);
    bucket.atMs = now;
    if (known !== undefined) this.buckets.delete(key); // move to the end: most recently used
    this.buckets.set(key, bucket);
    if (this.buckets.size > maxKeys + Math.floor(maxKeys / 8)) this.forgetOldest(maxKeys);
    return bucket;
  }

  /**
   * Many at once: the first key of a map is found only after the places of all keys that were
   * deleted before it.
   */
  private forgetOldest(maxKeys: number): void {
    for (const key of this.buckets.keys()) {
      if (this.buckets.size <= maxKeys) return;
      this.buckets.delete(key);
    }
  }
}
