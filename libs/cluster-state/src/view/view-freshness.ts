import { StoppedError, sleep, type Clock, type Log } from '@cloudless/base';
import type { StateStore } from '@cloudless/state-store';
import type { ViewFollower } from './view-follower.js';

/** Interval of the checks, milliseconds: one read of a number from the store. */
const CHECK_INTERVAL_MS = 1_000;
/**
 * Longest time that the view may take to show a revision that the store has, milliseconds. A watch
 * that takes longer is started again: its connection may be dead without either side knowing.
 */
const MAX_LAG_MS = 5_000;

/** Measures how old a view can be, by asking the store for its newest revision. */
export class ViewFreshness {
  private readonly stopping = new AbortController();
  private confirmedAtMs: number;

  /** @param follower - Has just read the store. */
  constructor(
    private readonly store: Pick<StateStore, 'revision'>,
    private readonly follower: ViewFollower,
    private readonly clock: Clock,
    private readonly log: Log,
  ) {
    this.confirmedAtMs = clock.now();
    void this.run();
  }

  /**
   * Milliseconds since the view is known to have shown everything that was committed. Up to
   * {@link CHECK_INTERVAL_MS} and a round trip while the view follows the store.
   */
  get ageMs(): number {
    return this.clock.now() - this.confirmedAtMs;
  }

  /**
   * Waits until the view shows everything that was committed before this call.
   * @param signal - Ends the wait.
   * @throws `StoppedError` when `signal` is aborted before that, the errors of the store.
   */
  async confirm(signal?: AbortSignal): Promise<void> {
    const sentAtMs = this.clock.now();
    const revision = await this.store.revision();
    await this.follower.waitForRevision(revision, signal);
    this.confirmedAtMs = Math.max(this.confirmedAtMs, sentAtMs);
  }

  /** Ends the checks. Does not wait for a store that does not answer. */
  close(): void {
    this.stopping.abort();
  }

  private async run(): Promise<void> {
    const { signal } = this.stopping;
    while (!signal.aborted && this.follower.failure === undefined) {
      await sleep(this.clock, CHECK_INTERVAL_MS, signal).catch(() => undefined);
      if (!signal.aborted) await this.check();
    }
  }

  private async check(): Promise<void> {
    const limit = new AbortController();
    const stop = (): void => limit.abort();
    const timer = this.clock.setTimer(MAX_LAG_MS, stop);
    this.stopping.signal.addEventListener('abort', stop, { once: true });
    try {
      await this.confirm(limit.signal);
    } catch (reason) {
      // A store that cannot be asked is reported by the watch.
      if (!(reason instanceof StoppedError) || this.stopping.signal.aborted) return;
      const { revision } = this.follower.view;
      this.log.warn('view lags behind the store, watching again', { revision });
      this.follower.restartWatch();
    } finally {
      timer.cancel();
      this.stopping.signal.removeEventListener('abort', stop);
    }
  }
}
