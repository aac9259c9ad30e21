import { backoffDelayMs, type BackoffPolicy } from '../time/backoff.js';
import type { Clock, Timer } from '../time/clock.js';
import { DURATION_BUCKETS, type Meter } from '../observability/meter.js';
import type { Random } from '../random.js';

/** Result of one pass over a key. */
export type WorkResult =
  | { readonly kind: 'done' } // nothing to do until an event wakes the key
  | { readonly kind: 'again' } // run once more at once
  | { readonly kind: 'after'; readonly delayMs: number } // run again after the delay, or earlier when woken
  | { readonly kind: 'retry' }; // a conflict or an outage: run again after the back-off

export interface WorkQueueOptions<Key> {
  readonly clock: Clock;
  readonly random: Random;
  /** Handles one key. A rejection counts as `retry` and is passed to `onError`. */
  readonly handle: (key: Key) => Promise<WorkResult>;
  /** Called with the error of a failed pass, for the log. */
  readonly onError: (key: Key, reason: unknown) => void;
  /** Delays before retries; the count of failures restarts after a pass without retry. */
  readonly backoff: BackoffPolicy;
  /** Number of keys that may run at the same time, at least 1. Default: 1. */
  readonly concurrency?: number;
  /** Records passes under this loop name. Default: no metrics. */
  readonly metrics?: { readonly meter: Meter; readonly loop: string };
}

/**
 * Milliseconds of passes after which the queue waits for the next iteration of the event loop.
 * Passes that end without waiting would otherwise follow each other in one iteration of the event
 * loop, for seconds when thousands of keys are woken at once.
 */
const MAX_BUSY_MS = 10;

/**
 * Runs a handler for woken keys. Queues each key at most once, never runs a key twice at the same
 * time, and retries failures with growing, bounded delays. Wake a key as often as events arrive.
 * After every 10 ms of passes, the next pass starts in a later iteration of the event loop. Only
 * the synchronous part of a pass counts, up to its first `await`.
 */
export class WorkQueue<Key extends string> {
  /** Time at which each key began to wait, on the monotonic clock. */
  private readonly waiting = new Map<Key, number>();
  private readonly running = new Set<Key>();
  private readonly wokenWhileRunning = new Set<Key>();
  private readonly timers = new Map<Key, DelayedPass>();
  private readonly failures = new Map<Key, number>();
  /** Time of the passes since the last pause, up to their first wait, milliseconds. */
  private busyMs = 0;
  /** Ends the pause in which other work of the process runs; undefined outside a pause. */
  private pause: Timer | undefined;
  private stopped = false;
  private idleWaiters: (() => void)[] = [];

  private readonly metrics: LoopMetrics | undefined;

  constructor(private readonly options: WorkQueueOptions<Key>) {
    const { metrics, clock } = options;
    if (metrics === undefined) return;
    this.metrics = measureLoop(metrics.meter, metrics.loop, () => {
      const [oldest] = this.waiting.values(); // in the order in which the keys were woken
      return {
        depth: this.waiting.size,
        retrying: this.failures.size,
        oldestMs: oldest === undefined ? 0 : clock.now() - oldest,
      };
    });
  }

  /** Number of keys that are waiting, running or delayed. */
  get size(): number {
    return this.waiting.size + this.running.size + this.timers.size;
  }

  /**
   * Requests a pass over `key`. A key that is delayed or backing off runs without further delay; a
   * key that is running runs once more afterwards. Does nothing after {@link stop}.
   */
  wake(key: Key): void {
    if (this.stopped) return;
    this.cancelTimer(key);
    if (this.running.has(key)) {
      this.wokenWhileRunning.add(key);
      return;
    }
    this.enqueue(key);
    this.startPasses();
  }

  /**
   * Requests a pass over `key` within some time, for a key whose passes pause. Cheap when a pass is
   * due by then, however often events arrive.
   * @param delayMs - 0 or less: as {@link wake}.
   */
  wakeWithin(key: Key, delayMs: number): void {
    if (delayMs <= 0 || this.running.has(key)) {
      this.wake(key);
      return;
    }
    if (this.stopped || this.waiting.has(key)) return;
    const dueMs = this.timers.get(key)?.dueMs;
    if (dueMs !== undefined && dueMs <= this.options.clock.now() + delayMs) return;
    this.cancelTimer(key);
    this.scheduleWake(key, delayMs);
  }

  /** Starts no more passes. Resolves when the running passes have ended. */
  async stop(): Promise<void> {
    this.stopped = true;
    this.metrics?.close();
    this.pause?.cancel();
    for (const { timer } of this.timers.values()) timer.cancel();
    this.timers.clear();
    this.waiting.clear();
    if (this.running.size > 0) await new Promise<void>((resolve) => this.idleWaiters.push(resolve));
  }

  private startPasses(): void {
    for (const key of this.waiting.keys()) {
      if (this.pause !== undefined || this.running.size >= (this.options.concurrency ?? 1)) return;
      this.waiting.delete(key);
      this.running.add(key);
      void this.run(key);
    }
  }

  private async run(key: Key): Promise<void> {
    let result: WorkResult;
    let hasFailed = false;
    const startedAtMs = this.options.clock.now();
    try {
      const handled = this.options.handle(key);
      this.recordBusy(this.options.clock.now() - startedAtMs);
      result = await handled;
    } catch (reason) {
      this.options.onError(key, reason);
      result = { kind: 'retry' };
      hasFailed = true;
    }
    this.metrics?.recordPass(
      hasFailed ? 'failed' : result.kind,
      this.options.clock.now() - startedAtMs,
    );
    this.running.delete(key);
    if (!this.stopped) this.finishPass(key, result);
    if (this.running.size === 0) this.idleWaiters.splice(0).forEach((resolve) => resolve());
    this.startPasses();
  }

  /** Counts the time of a pass until its first wait, and begins a pause when it is due. */
  private recordBusy(durationMs: number): void {
    this.busyMs += durationMs;
    if (this.busyMs < MAX_BUSY_MS || this.stopped) return;
    this.busyMs = 0;
    this.pause ??= this.options.clock.setTimer(0, () => {
      this.pause = undefined;
      this.startPasses();
    });
  }

  private finishPass(key: Key, result: WorkResult): void {
    const wasWoken = this.wokenWhileRunning.delete(key);
    if (result.kind === 'retry') {
      const failures = (this.failures.get(key) ?? 0) + 1;
      this.failures.set(key, failures);
      this.scheduleWake(key, backoffDelayMs(this.options.backoff, failures, this.options.random));
      return;
    }
    this.failures.delete(key);
    if (wasWoken || result.kind === 'again') this.enqueue(key);
    else if (result.kind === 'after') this.scheduleWake(key, result.delayMs);
  }

  private enqueue(key: Key): void {
    if (!this.waiting.has(key)) this.waiting.set(key, this.options.clock.now());
  }

  private scheduleWake(key: Key, delayMs: number): void {
    const { clock } = this.options;
    const timer = clock.setTimer(delayMs, () => {
      if (this.timers.get(key)?.timer === timer) this.timers.delete(key);
      this.wake(key);
    });
    this.timers.set(key, { timer, dueMs: clock.now() + delayMs });
  }

  private cancelTimer(key: Key): void {
    this.timers.get(key)?.timer.cancel();
    this.timers.delete(key);
  }
}

/** A pass that a timer starts. */
interface DelayedPass {
  readonly timer: Timer;
  /** Time of the pass on the monotonic clock. */
  readonly dueMs: number;
}

interface LoopMetrics {
  recordPass(result: WorkResult['kind'] | 'failed', durationMs: number): void;
  close(): void;
}

/** Creates the metrics of one loop. All loops share the metrics and differ by the label `loop`. */
function measureLoop(
  meter: Meter,
  loop: string,
  collect: () => { readonly depth: number; readonly retrying: number; readonly oldestMs: number },
): LoopMetrics {
  const labels = { loop };
  const passes = meter.counter({
    name: 'cloudless_loop_passes_total',
    help: 'Passes of a control loop, by how they ended: done, again, after, retry (something it had read changed) or failed.',
    labels: ['loop', 'result'],
  });
  const duration = meter.histogram({
    name: 'cloudless_loop_pass_duration_seconds',
    help: 'Time of one pass of a control loop.',
    labels: ['loop'],
    buckets: DURATION_BUCKETS,
  });
  const depth = meter.gauge({
    name: 'cloudless_loop_queue_depth',
    help: 'Keys that wait for a pass of their loop.',
    labels: ['loop'],
  });
  const oldest = meter.gauge({
    name: 'cloudless_loop_oldest_wait_seconds',
    help: 'How long the key that waits longest has waited for a pass.',
    labels: ['loop'],
  });
  const retrying = meter.gauge({
    name: 'cloudless_loop_retrying',
    help: 'Keys whose last pass asked for a retry or failed.',
    labels: ['loop'],
  });
  const close = meter.onExpose(() => {
    const state = collect();
    depth.set(state.depth, labels);
    oldest.set(state.oldestMs / 1_000, labels);
    retrying.set(state.retrying, labels);
  });
  return {
    recordPass: (result, durationMs) => {
      passes.add(1, { loop, result });
      duration.observe(durationMs / 1_000, labels);
    },
    close,
  };
}
