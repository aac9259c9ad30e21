import type { Clock, Timer } from '@cloudless/base';

/** Differences between the clocks of a machine and the time of the world. */
export interface Drift {
  /** Speed of the monotonic clock; 1 is right. */
  readonly rate: number;
  /** Offset of the wall clock, milliseconds. */
  readonly offsetMs: number;
}

/**
 * Point at which a process dies by itself: at its `call`-th port call, before or after the call
 * took effect.
 */
export interface CrashPoint {
  readonly call: number;
  readonly when: 'before' | 'after';
}

/** This many port calls at one moment of virtual time indicate a loop that never waits. */
const MAX_CALLS_AT_ONCE = 20_000;

/**
 * A process that can be killed at any await and paused as by SIGSTOP. All input of the process
 * passes {@link run}, {@link call} or its clock. After the death of the process none of the three
 * delivers anything: its promises never resolve, its timers never fire, and its writes have no
 * effect.
 */
export class SimProcess {
  readonly clock: Clock;
  private state: 'running' | 'paused' | 'dead' = 'running';
  private held: (() => void)[] = [];
  private readonly deathListeners: (() => void)[] = [];
  private calls = 0;
  private crash: CrashPoint | undefined;
  private burst = { at: -1, calls: 0 };

  /** @param time - Clock of the world. */
  constructor(
    readonly name: string,
    private readonly time: Clock,
    drift: Drift,
  ) {
    this.clock = createDriftingClock(time, drift, (action) => this.run(action));
  }

  get isDead(): boolean {
    return this.state === 'dead';
  }

  get isRunning(): boolean {
    return this.state === 'running';
  }

  /** Runs an action in the process: now, after a pause, or never. */
  run(action: () => void): void {
    if (this.state === 'running') action();
    else if (this.state === 'paused') this.held.push(action);
  }

  /**
   * Performs a port call, at which the process may die. The promise of a dead process never
   * settles.
   */
  call<Result>(effect: () => Promise<Result>): Promise<Result> {
    if (this.isDead) return neverSettle();
    this.calls += 1;
    this.countBurst();
    const crashTime =
      this.crash !== undefined && this.calls >= this.crash.call ? this.crash.when : undefined;
    if (crashTime === 'before') {
      this.kill();
      return neverSettle();
    }
    return new Promise((resolve, reject) => {
      const respond = (settle: () => void): void =>
        crashTime === 'after' ? this.kill() : this.run(settle);
      effect().then(
        (value) => respond(() => resolve(value)),
        (reason: unknown) => respond(() => reject(reason as Error)),
      );
    });
  }

  /** Forwards the items of an outside stream into the process. */
  iterate<Item>(source: AsyncIterable<Item>): AsyncIterableIterator<Item> {
    const items = source[Symbol.asyncIterator]();
    const iterator: AsyncIterableIterator<Item> = {
      next: () => this.call(() => items.next()),
      return: () => {
        const ending =
          items.return?.() ?? Promise.resolve({ done: true as const, value: undefined });
        return this.call(() => ending);
      },
      [Symbol.asyncIterator]: () => iterator,
    };
    return iterator;
  }

  /** Makes the process die at a later port call; the next call has number 1. */
  crashAt(calls: number, when: CrashPoint['when']): void {
    this.crash = { call: this.calls + calls, when };
  }

  /** Cancels a planned crash. */
  cancelCrash(): void {
    this.crash = undefined;
  }

  pause(): void {
    if (this.state === 'running') this.state = 'paused';
  }

  /** Ends a pause; actions that arrived meanwhile run one after the other. */
  resume(): void {
    if (this.state !== 'paused') return;
    this.state = 'running';
    for (const action of this.held.splice(0)) this.time.setTimer(0, () => this.run(action));
  }

  kill(): void {
    if (this.isDead) return;
    this.state = 'dead';
    this.held = [];
    for (const listener of this.deathListeners.splice(0)) listener();
  }

  /**
   * Calls the listener once when the process dies. The listener belongs to the world, not to the
   * process.
   */
  onDeath(listener: () => void): void {
    this.deathListeners.push(listener);
  }

  private countBurst(): void {
    const at = this.time.now();
    if (this.burst.at !== at) this.burst = { at, calls: 0 };
    this.burst.calls += 1;
    if (this.burst.calls < MAX_CALLS_AT_ONCE) return;
    this.kill(); // Otherwise virtual time would never advance.
    throw new Error(`${this.name} used its ports ${MAX_CALLS_AT_ONCE} times without time passing`);
  }
}

/**
 * Shortest delay, milliseconds, as real timers have one. A shorter delay would be lost to rounding
 * and could loop forever.
 */
const MIN_DELAY_MS = 0.01;

/** Creates a clock of a machine. Its timers fire through `run`. */
export function createDriftingClock(
  time: Clock,
  drift: Drift,
  run: (action: () => void) => void = (action) => action(),
): Clock {
  return {
    now: () => time.now() * drift.rate,
    wallTime: () => Math.floor(time.wallTime() + time.now() * (drift.rate - 1) + drift.offsetMs),
    setTimer: (delayMs, action): Timer => {
      let cancelled = false;
      const timer = time.setTimer(Math.max(MIN_DELAY_MS, delayMs / drift.rate), () =>
        run(() => {
          if (!cancelled) action();
        }),
      );
      return {
        cancel: () => {
          cancelled = true;
          timer.cancel();
        },
      };
    },
  };
}

/** Returns a promise that never settles. */
export function neverSettle<Result>(): Promise<Result> {
  return new Promise<Result>(() => undefined);
}
