import { backoffDelayMs, type BackoffPolicy } from './backoff.js';
import type { Clock, Timer } from './clock.js';
import type { Random } from './random.js';

/** What a pass over one key found. */
export type WorkResult =
  | { readonly kind: 'done' } // nothing more until an event wakes it
  | { readonly kind: 'again' } // run once more at once
  | { readonly kind: 'after'; readonly delayMs: number } // run again then, unless woken before
  | { readonly kind: 'retry' }; // something changed or is unavailable: back off

/** Needs of a {@link WorkQueue}. */
export interface WorkQueueOptions<Key> {
  readonly clock: Clock;
  readonly random: Random;
  /** Handles one key. Its rejection counts as `retry` and is given to `onError`. */
  readonly handle: (key: Key) => Promise<WorkResult>;
  readonly onError: (key: Key, reason: unknown) => void;
  readonly backoff: BackoffPolicy;
  /** How many keys at once, 1 or more. Default 1. */
  readonly concurrency?: number;
}

/**
 * Runs a handler for keys that were woken: keeps each key once, never runs one key twice at the same time, and brings
 * failures back with growing, jittered, bounded delay. An event may wake a key as often as it likes.
 */
export class WorkQueue<Key extends string> {
  private readonly waiting = new Set<Key>();
  private readonly running = new Set<Key>();
  private readonly wokenWhileRunning = new Set<Key>();
  private readonly timers = new Map<Key, Timer>();
  private readonly failures = new Map<Key, number>();
  private stopped = false;
  private idleWaiters: (() => void)[] = [];

  constructor(private readonly options: WorkQueueOptions<Key>) {}

  /** Number of keys waiting, running or delayed. */
  get size(): number {
    return this.waiting.size + this.running.size + this.timers.size;
  }

  /** Asks for a pass over `key` soon; a delayed one is brought forward. */
  wake(key: Key): void {
    if (this.stopped) return;
    this.timers.get(key)?.cancel();
    this.timers.delete(key);
    if (this.running.has(key)) {
      this.wokenWhileRunning.add(key);
      return;
    }
    this.waiting.add(key);
    this.pump();
  }

  /** Takes no more work; resolves when what runs has ended. */
  async stop(): Promise<void> {
    this.stopped = true;
    for (const timer of this.timers.values()) timer.cancel();
    this.timers.clear();
    this.waiting.clear();
    if (this.running.size > 0) await new Promise<void>((resolve) => this.idleWaiters.push(resolve));
  }

  private pump(): void {
    for (const key of this.waiting) {
      if (this.running.size >= (this.options.concurrency ?? 1)) return;
      this.waiting.delete(key);
      this.running.add(key);
      void this.run(key);
    }
  }

  private async run(key: Key): Promise<void> {
    let result: WorkResult;
    try {
      result = await this.options.handle(key);
    } catch (reason) {
      this.options.onError(key, reason);
      result = { kind: 'retry' };
    }
    this.running.delete(key);
    if (!this.stopped) this.settle(key, result);
    if (this.running.size === 0) this.idleWaiters.splice(0).forEach((resolve) => resolve());
    this.pump();
  }

  private settle(key: Key, result: WorkResult): void {
    const woken = this.wokenWhileRunning.delete(key);
    if (result.kind === 'retry') {
      const failures = (this.failures.get(key) ?? 0) + 1;
      this.failures.set(key, failures);
      this.delay(key, backoffDelayMs(this.options.backoff, failures, this.options.random));
      return;
    }
    this.failures.delete(key);
    if (woken || result.kind === 'again') this.waiting.add(key);
    else if (result.kind === 'after') this.delay(key, result.delayMs);
  }

  private delay(key: Key, delayMs: number): void {
    const timer = this.options.clock.setTimer(delayMs, () => {
      if (this.timers.get(key) === timer) this.timers.delete(key);
      this.wake(key);
    });
    this.timers.set(key, timer);
  }
}
