import type { Clock } from './clock.js';

/** Needs of a {@link Throttle}. */
export interface ThrottleOptions {
  readonly clock: Clock;
  /** How many of one key may come at once, 1 or more. */
  readonly burst: number;
  /** After a burst one more of the key may come each so many milliseconds. */
  readonly everyMs: number;
  /**
   * Keys that are remembered; the one unused longest is forgotten first, and then begins anew.
   * Default 1 000.
   */
  readonly maxKeys?: number;
}

/** Whether one may pass, and for how many others it stands. */
export type Throttled =
  | { readonly passes: true; readonly left: LeftOut | undefined }
  /** It was left out; `waitMs` until the next may pass. */
  | { readonly passes: false; readonly waitMs: number };

/** What was left out since the last one that passed. */
export interface LeftOut {
  readonly count: number;
  /** Wall-clock milliseconds of the first. */
  readonly sinceMs: number;
}

interface Bucket {
  tokens: number;
  atMs: number;
  left: { count: number; readonly sinceMs: number } | undefined;
}

/**
 * Lets a few of one kind pass, then one at a time, and counts what it leaves out: for what others
 * could make come without end.
 */
export class Throttle {
  private readonly buckets = new Map<string, Bucket>();

  constructor(private readonly options: ThrottleOptions) {}

  /** One more of `key` has come. */
  take(key: string): Throttled {
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
    this.buckets.delete(key); // to the end: used last
    this.buckets.set(key, bucket);
    const [oldest] = this.buckets.keys();
    if (this.buckets.size > maxKeys && oldest !== undefined) this.buckets.delete(oldest);
    return bucket;
  }
}
