import { assert, type Clock } from '@cloudless/base';

/**
 * Which line a start waits in: of a replica's first container, or of one that takes the place of an
 * ended one.
 */
export type StartKind = 'first' | 'restart';

/** A place in the {@link StartQueue}. */
export interface StartTurn {
  /** It has not begun. */
  readonly waits: boolean;
  /** Takes it out of the queue. @returns False when it has begun. */
  leave(): boolean;
}

/**
 * A start without an answer of the runtime for so long counts no more, milliseconds: one that hangs
 * must not hold up the others for ever.
 */
const HELD_AT_MOST_MS = 30_000;

interface Waiting {
  readonly kind: StartKind;
  readonly start: () => Promise<void>;
}

/**
 * Bounds how many containers are being started at a time, as each start costs a machine much more
 * than a container that runs. First starts and restarts wait in a line each and take turns:
 * replicas that crash over and over do not hold up a deployment, and a big deployment does not hold
 * up what served before. In a line who came first goes first, and a replica waits at most once.
 */
export class StartQueue {
  private readonly lines: Record<StartKind, Set<Waiting>> = {
    first: new Set(),
    restart: new Set(),
  };
  private running = 0;
  private last: StartKind = 'first';

  /** @param limit - Starts at a time, 1 or more. */
  constructor(
    private readonly limit: number,
    private readonly clock: Clock,
  ) {
    assert(limit >= 1, 'at least one start at a time');
  }

  /** How many wait. */
  get size(): number {
    return this.lines.first.size + this.lines.restart.size;
  }

  /** Calls `start` at once when there is room, or else when it is its turn. It does not reject. */
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

  /** The longest waiting of the line whose turn it is. */
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
