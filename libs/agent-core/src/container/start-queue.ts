import { assert, type Clock } from '@cloudless/base';

/**
 * Queue of a start: `first` for a replica's first container, `restart` for a container that
 * replaces an exited container.
 */
export type StartKind = 'first' | 'restart';

/** A start in the {@link StartQueue}. */
export interface QueuedStart {
  /** True until the start begins. */
  readonly isWaiting: boolean;
  /**
   * Removes the start from the queue.
   * @returns False when the start has already begun or was cancelled before.
   */
  cancel(): boolean;
}

/**
 * A start that the runtime has not answered for this long no longer counts against the limit,
 * milliseconds. Otherwise starts that hang would block all others.
 */
const START_TIMEOUT_MS = 30_000;

interface WaitingStart {
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
  private readonly queues: Record<StartKind, Set<WaitingStart>> = {
    first: new Set(),
    restart: new Set(),
  };
  private running = 0;
  private lastKind: StartKind = 'first';

  /** @param limit - Maximum number of concurrent starts, 1 or more. */
  constructor(
    private readonly limit: number,
    private readonly clock: Clock,
  ) {
    assert(limit >= 1, 'the limit of concurrent starts must be at least 1');
  }

  /** Number of waiting starts. */
  get size(): number {
    return this.queues.first.size + this.queues.restart.size;
  }

  /**
   * Calls `start` at once when the limit allows, otherwise when its turn comes. `start` must not
   * reject.
   */
  add(kind: StartKind, start: () => Promise<void>): QueuedStart {
    const waiting: WaitingStart = { kind, start };
    const queue = this.queues[kind];
    queue.add(waiting);
    this.startWaiting();
    return {
      get isWaiting() {
        return queue.has(waiting);
      },
      cancel: () => queue.delete(waiting),
    };
  }

  private startWaiting(): void {
    while (this.running < this.limit) {
      const next = this.selectNext();
      if (next === undefined) return;
      this.queues[next.kind].delete(next);
      this.lastKind = next.kind;
      this.run(next);
    }
  }

  /**
   * Returns the oldest start of the queue whose turn it is, or else of the other queue; undefined
   * when both queues are empty.
   */
  private selectNext(): WaitingStart | undefined {
    const { first, restart } = this.queues;
    const [preferred, other] = this.lastKind === 'first' ? [restart, first] : [first, restart];
    for (const waiting of preferred) return waiting;
    for (const waiting of other) return waiting;
    return undefined;
  }

  private run({ start }: WaitingStart): void {
    let holdsSlot = true;
    const release = (): void => {
      timer.cancel();
      if (!holdsSlot) return;
      holdsSlot = false;
      this.running -= 1;
      this.startWaiting();
    };
    this.running += 1;
    const timer = this.clock.setTimer(START_TIMEOUT_MS, release);
    void start().finally(release);
  }
}
