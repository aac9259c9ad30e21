import { CloudlessError, type Clock, type Random, type Timer } from '@cloudless/base';
import type { ChangeBatch, StateStore } from '@cloudless/state-store';

/** Time after which a call fails whose request or answer was lost, milliseconds. */
const CALL_TIMEOUT_MS = 300;
const LONG_DELAY_MS = 400;
const SHORT_DELAY_MS = 5;

export interface FaultyProcessOptions {
  /** Clock of the test. */
  readonly clock: Clock;
  readonly store: StateStore;
  readonly random: Random;
  /** Speed of the clock of the process: 1.1 is 10 % fast. */
  readonly clockRate: number;
  /** Share of the calls of the store whose request or answer is lost, or that take long. */
  readonly faultRatio: number;
}

/**
 * A process with a clock and a connection to a store of its own, for tests of what several
 * coordinators do together: it can be paused as by SIGSTOP, and cut off from the store.
 */
export class FaultyProcess {
  private pausedUntilMs = 0;
  private cutUntilMs = 0;

  constructor(private readonly options: FaultyProcessOptions) {}

  /** Timers fire late by the pauses; the time itself goes on during a pause. */
  readonly clock: Clock = {
    now: () => this.options.clock.now() * this.options.clockRate,
    wallTime: () => this.options.clock.wallTime(),
    setTimer: (delayMs, action) => this.setTimer(delayMs, action),
  };

  /** The store behind the connection of this process. */
  get store(): StateStore {
    const { store } = this.options;
    return {
      get: (key) => this.call(() => store.get(key)),
      range: (request) => this.call(() => store.range(request)),
      txn: (compares, operations) => this.call(() => store.txn(compares, operations)),
      watch: (request) => this.deliver(store.watch(request)),
      revision: () => this.call(() => store.revision()),
      grantLease: (ttlMs) => this.call(() => store.grantLease(ttlMs)),
      keepAlive: (lease) => this.call(() => store.keepAlive(lease)),
      revokeLease: (lease) => this.call(() => store.revokeLease(lease)),
      close: () => Promise.resolve(),
    };
  }

  /** Stops timers, answers and changes from reaching the process. */
  pause(durationMs: number): void {
    this.pausedUntilMs = Math.max(this.pausedUntilMs, this.options.clock.now() + durationMs);
  }

  /** Loses what is on the way between the process and its store. */
  cut(durationMs: number): void {
    this.cutUntilMs = Math.max(this.cutUntilMs, this.options.clock.now() + durationMs);
  }

  private get isCut(): boolean {
    return this.options.clock.now() < this.cutUntilMs;
  }

  private setTimer(delayMs: number, action: () => void): Timer {
    const { clock, clockRate } = this.options;
    let isCancelled = false;
    let timer = clock.setTimer(delayMs / clockRate, () => fire());
    const fire = (): void => {
      const restMs = this.pausedUntilMs - clock.now();
      if (restMs > 0) timer = clock.setTimer(Math.max(1, restMs), fire);
      else if (!isCancelled) action();
    };
    const cancel = (): void => {
      isCancelled = true;
      timer.cancel();
    };
    return { cancel };
  }

  private async call<Result>(run: () => Promise<Result>): Promise<Result> {
    const fate = this.options.random.next() / Math.max(this.options.faultRatio, Number.EPSILON);
    await this.wait(this.chooseDelayMs(fate < 1));
    if (this.isCut || fate < 0.25) return this.fail();
    const answer = await run().then(
      (result) => () => result,
      (reason: unknown) => (): never => {
        throw reason;
      },
    );
    await this.wait(this.chooseDelayMs(fate < 1));
    if (this.isCut || fate < 0.5) return this.fail();
    await this.waitUntilRunning();
    return answer();
  }

  private async *deliver(batches: AsyncIterable<ChangeBatch>): AsyncGenerator<ChangeBatch> {
    for await (const batch of batches) {
      await this.wait(this.chooseDelayMs(false));
      if (this.isCut) await this.fail();
      await this.waitUntilRunning();
      yield batch;
    }
  }

  private async fail(): Promise<never> {
    await this.wait(CALL_TIMEOUT_MS);
    await this.waitUntilRunning();
    throw new CloudlessError('STORE_UNAVAILABLE', 'the store did not answer');
  }

  private chooseDelayMs(isLong: boolean): number {
    return this.options.random.next() * (isLong ? LONG_DELAY_MS : SHORT_DELAY_MS);
  }

  private async waitUntilRunning(): Promise<void> {
    for (;;) {
      const restMs = this.pausedUntilMs - this.options.clock.now();
      if (restMs <= 0) return;
      await this.wait(Math.max(1, restMs));
    }
  }

  private wait(delayMs: number): Promise<void> {
    return new Promise((resolve) => this.options.clock.setTimer(delayMs, resolve));
  }
}
