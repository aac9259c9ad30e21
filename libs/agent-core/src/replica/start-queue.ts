import { assert, type Clock } from '@cloudless/base';

/**
 * Queue of a start: `first` for a replica's first container, `restart` for a container that
 * replaces an exited one.
 */
export type StartKind = 'first' | 'restart';

/** A start in the {@link StartQueue}. */
export interface StartTurn {
  /** True until the start begins. */
  readonly waits: boolean;
  /** Removes the start from the queue. @returns False when it has begun. */
  leave(): boolean;
}

/**
 * A start that the runtime has not answered for this long no longer counts against the limit,
 * milliseconds. Otherwise starts that hang would block all others.
 */
const HELD_AT_MOST_MS = 30_000;

interface Waiting {
  readonly kind: StartKind;
  readonly start: () => Promise<void>;
}

/**
 * Limits how many containers are being started at the same time: a start costs much more than a
 * running container. First starts and restarts wait in separate first-in-first-out queues that are
 * served alternately, so that crash loops do not delay a deployment, and a large deployment does
 * not delay restarts.
 */
export class StartQueue {
  private readonly lines: Record<StartKind, Set<Waiting>> = {
    first: new Set(),
    restart: new Set(),
  };
  private running = 0;
  private last: StartKind = 'first';

  /** @param limit - Maximum number of concurrent starts, 1 or more. */
  constructor(
    private readonly limit: number,
    private readonly clock: Clock,
  ) {
    assert(limit >= 1, 'the limit of concurrent starts must be at least 1');
  }

  /** Number of waiting starts. */
  get size(): number {
    return this.lines.first.size + this.lines.restart.size;
  }

  /**
   * Calls `start` at once when the limit allows, otherwise when its turn comes. `start` must not
   * reject.
   */
  add(kind: StartKind, start: () => Promise<void>): StartTurn {
    const waiting: Waiting = { kind, start };
    const line = this.lines[kind];
    line.add(waiting);
    this.fill();
    return {
      get waits() {
        return line.has(waiting);
      },
      leave: () => line.delete(waiting),
    };
  }

  private fill(): void {
    while (this.running < this.limit) {
      const next = this.next();
      if (next === undefined) return;
      this.lines[next.kind].delete(next);
      this.last = next.kind;
      this.run(next);
    }
  }

  /** The oldest start of the queue whose turn it is. */
  private next(): Waiting | undefined {
    const { first, restart } = this.lines;
    const [preferred, other] = this.last === 'first' ? [restart, first] : [first, restart];
    for (const waiting of preferred) return waiting;
    for (const waiting of other) return waiting;
    return undefined;
  }

  private run({ start }: Waiting): void {
    let holds = true;
    const release = (): void => {
      timer.cancel();
      if (!holds) return;
      holds = false;
      this.running -= 1;
      this.fill();
    };
    this.running += 1;
    const timer = this.clock.setTimer(HELD_AT_MOST_MS, release);
    void start().finally(release);
  }
}
