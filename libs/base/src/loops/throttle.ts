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

/** The result for an event that passes when none was suppressed before: for almost every event. */
export const PASSES: ThrottleResult = Object.freeze({ passes: true, suppressed: undefined });

/**
 * Token-bucket rate limiter per key that counts the events it suppresses. For log lines and events
 * that a client could trigger without end.
 */
export class Throttle {
  /**
   * When each key has a full burst again, on the monotonic clock: one interval later for each event
   * that has passed. Numbers, because the largest caller keeps 10,000 keys, at most 11,250.
   */
  private readonly fullAtMs = new Map<string, number>();
  private readonly suppressed = new Map<string, { count: number; readonly sinceMs: number }>();

  constructor(private readonly options: ThrottleOptions) {}

  /** Records an event of `key` and returns whether the event passes. */
  take(key: string): ThrottleResult {
    const { clock, burst, everyMs } = this.options;
    const now = clock.now();
    const known = this.fullAtMs.get(key);
    const fullAtMs = known === undefined ? now : Math.max(now, known);
    const waitMs = fullAtMs - now - (burst - 1) * everyMs;
    if (known !== undefined) this.fullAtMs.delete(key); // move to the end: most recently used
    this.fullAtMs.set(key, waitMs > 0 ? fullAtMs : fullAtMs + everyMs);
    if (known === undefined) this.forgetOldest();
    if (waitMs > 0) {
      this.countSuppressed(key);
      return { passes: false, waitMs: Math.ceil(waitMs) };
    }
    const suppressed = this.suppressed.size === 0 ? undefined : this.suppressed.get(key);
    if (suppressed === undefined) return PASSES;
    this.suppressed.delete(key);
    return { passes: true, suppressed };
  }

  /** Drops the state of a key, which then starts with a full burst. */
  forget(key: string): void {
    this.fullAtMs.delete(key);
    this.suppressed.delete(key);
  }

  private countSuppressed(key: string): void {
    const known = this.suppressed.get(key);
    if (known !== undefined) known.count += 1;
    else this.suppressed.set(key, { count: 1, sinceMs: this.options.clock.wallTime() });
  }

  /**
   * Does nothing until there are an eighth more keys than `maxKeys`, then forgets those above
   * `maxKeys` at once: the first key of a map is found only after the places of all keys that were
   * deleted before it.
   */
  private forgetOldest(): void {
    const { maxKeys = 1_000 } = this.options;
    if (this.fullAtMs.size <= maxKeys + Math.floor(maxKeys / 8)) return;
    for (const key of this.fullAtMs.keys()) {
      if (this.fullAtMs.size <= maxKeys) return;
      this.forget(key);
    }
  }
}
