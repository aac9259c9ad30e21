import type { Clock, Timer } from '@cloudless/base';

/** How the clocks of a machine differ from the time of the world. */
export interface Drift {
  /** How fast its monotonic clock runs: 1 is right. */
  readonly rate: number;
  /** What its wall clock is ahead, milliseconds. */
  readonly offsetMs: number;
}

/**
 * When a process dies by itself: at its `call`-th use of a port, before or after that took effect.
 */
export interface CrashPoint {
  readonly call: number;
  readonly when: 'before' | 'after';
}

/** So many uses of ports while time stands still are a loop that never waits. */
const MAX_CALLS_AT_ONCE = 20_000;

/**
 * A process that can be killed at any await, and be stopped for a while as by SIGSTOP. Everything
 * that reaches it does so by {@link run}, {@link call} or its clock: from its death on nothing
 * does, so that its promises never resolve, its timers never fire, and its writes have no effect.
 */
export class SimProcess {
  readonly clock: Clock;
  private state: 'running' | 'paused' | 'dead' = 'running';
  private held: (() => void)[] = [];
  private readonly deathListeners: (() => void)[] = [];
  private calls = 0;
  private crash: CrashPoint | undefined;
  private burst = { at: -1, calls: 0 };

  /** @param time - The clock of the world. */
  constructor(
    readonly name: string,
    private readonly time: Clock,
    drift: Drift,
  ) {
    this.clock = driftingClock(time, drift, (action) => this.run(action));
  }

  get isDead(): boolean {
    return this.state === 'dead';
  }

  get isRunning(): boolean {
    return this.state === 'running';
  }

  /** Does something in the process: now, when it goes on, or never. */
  run(action: () => void): void {
    if (this.state === 'running') action();
    else if (this.state === 'paused') this.held.push(action);
  }

  /** A use of a port: here the process may die. @throws nothing: a dead process gets no answer. */
  call<Result>(effect: () => Promise<Result>): Promise<Result> {
    if (this.isDead) return never();
    this.calls += 1;
    this.countBurst();
    const dies =
      this.crash !== undefined && this.calls >= this.crash.call ? this.crash.when : undefined;
    if (dies === 'before') {
      this.kill();
      return never();
    }
    return new Promise((resolve, reject) => {
      const answer = (give: () => void): void => (dies === 'after' ? this.kill() : this.run(give));
      effect().then(
        (value) => answer(() => resolve(value)),
        (reason: unknown) => answer(() => reject(reason as Error)),
      );
    });
  }

  /** Items of a stream from outside. */
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

  /** Lets it die at a later use of a port, counted from now. */
  crashAt(calls: number, when: CrashPoint['when']): void {
    this.crash = { call: this.calls + calls, when };
  }

  /** It does not die by itself any more. */
  spare(): void {
    this.crash = undefined;
  }

  pause(): void {
    if (this.state === 'running') this.state = 'paused';
  }

  /** Goes on with all that came meanwhile, one after the other. */
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

  /** Called once, when it dies; what it does belongs to the world, not to the process. */
  onDeath(listener: () => void): void {
    this.deathListeners.push(listener);
  }

  private countBurst(): void {
    const at = this.time.now();
    if (this.burst.at !== at) this.burst = { at, calls: 0 };
    this.burst.calls += 1;
    if (this.burst.calls < MAX_CALLS_AT_ONCE) return;
    this.kill(); // else the world would stand still for ever
    throw new Error(`${this.name} used its ports ${MAX_CALLS_AT_ONCE} times without time passing`);
  }
}

/**
 * As with real timers none fires at once: shorter waits are lost in the rounding of the times, and
 * would never end.
 */
const LEAST_DELAY_MS = 0.01;

/** A clock of a machine. Timers fire through `run`. */
export function driftingClock(
  time: Clock,
  drift: Drift,
  run: (action: () => void) => void = (action) => action(),
): Clock {
  return {
    now: () => time.now() * drift.rate,
    wallTime: () => Math.floor(time.wallTime() + time.now() * (drift.rate - 1) + drift.offsetMs),
    setTimer: (delayMs, action): Timer => {
      let cancelled = false;
      const timer = time.setTimer(Math.max(LEAST_DELAY_MS, delayMs / drift.rate), () =>
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

/** A promise that nothing will ever answer. */
export function never<Result>(): Promise<Result> {
  return new Promise<Result>(() => undefined);
}
