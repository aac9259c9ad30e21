import { assert, type Clock } from '@cloudless/base';
import type { ContainerKind } from '@cloudless/runtime';

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
 * A start that a runtime which answers other calls has not answered for this long no longer counts
 * against the limit, milliseconds. Otherwise starts that hang would block all others.
 */
const START_TIMEOUT_MS = 30_000;

interface WaitingStart {
  readonly kind: StartKind;
  readonly containerKind: ContainerKind;
  /** Position among all starts, in the order of the calls of `add`. */
  readonly order: number;
  readonly start: () => Promise<void>;
}

/** The waiting starts of one {@link StartKind}, the oldest first, by what they start. */
type WaitingStarts = Readonly<Record<ContainerKind, Set<WaitingStart>>>;

/**
 * Limits how many containers are being started at the same time: a start costs much more than a
 * running container. First starts and restarts wait in separate first-in-first-out queues that are
 * served alternately, so that crash loops do not delay a deployment, and a large deployment does
 * not delay restarts. A runtime that hangs delays no start of the other runtime, see
 * {@link pause}.
 */
export class StartQueue {
  private readonly queues: Readonly<Record<StartKind, WaitingStarts>> = {
    first: { container: new Set(), process: new Set() },
    restart: { container: new Set(), process: new Set() },
  };
  /** Running starts that count against the limit while their runtime is not paused. */
  private readonly running: Record<ContainerKind, number> = { container: 0, process: 0 };
  private readonly paused = new Set<ContainerKind>();
  private lastKind: StartKind = 'first';
  private nextOrder = 0;

  /** @param limit - Maximum number of concurrent starts, 1 or more. */
  constructor(
    private readonly limit: number,
    private readonly clock: Clock,
  ) {
    assert(limit >= 1, 'the limit of concurrent starts must be at least 1');
  }

  /** Number of waiting starts. */
  get size(): number {
    return Object.values(this.queues)
      .map(({ container, process }) => container.size + process.size)
      .reduce((sum, size) => sum + size, 0);
  }

  /**
   * Calls `start` at once when the limit allows, otherwise when its turn comes. `start` must not
   * reject.
   * @param containerKind - What is started, which names the runtime.
   */
  add(kind: StartKind, containerKind: ContainerKind, start: () => Promise<void>): QueuedStart {
    const waiting: WaitingStart = { kind, containerKind, order: this.nextOrder++, start };
    const queue = this.queues[kind][containerKind];
    queue.add(waiting);
    this.startWaiting();
    return {
      get isWaiting() {
        return queue.has(waiting);
      },
      cancel: () => queue.delete(waiting),
    };
  }

  /**
   * Pauses the starts of a runtime that does not answer: its waiting starts do not begin, and its
   * running starts do not count against the limit until {@link resume}. Does nothing when the
   * runtime is paused.
   */
  pause(containerKind: ContainerKind): void {
    if (this.paused.has(containerKind)) return;
    this.paused.add(containerKind);
    this.startWaiting();
  }

  /** Ends the pause of a runtime that answers again. Its running starts count again. */
  resume(containerKind: ContainerKind): void {
    if (this.paused.delete(containerKind)) this.startWaiting();
  }

  private startWaiting(): void {
    while (this.countRunning() < this.limit) {
      const next = this.selectNext();
      if (next === undefined) return;
      this.queues[next.kind][next.containerKind].delete(next);
      this.lastKind = next.kind;
      this.run(next);
    }
  }

  private countRunning(): number {
    return this.listUnpaused().reduce((sum, containerKind) => sum + this.running[containerKind], 0);
  }

  private listUnpaused(): readonly ContainerKind[] {
    return (['container', 'process'] as const).filter(
      (containerKind) => !this.paused.has(containerKind),
    );
  }

  /**
   * Returns the oldest start of the queue whose turn it is, or else of the other queue; undefined
   * when no start may begin.
   */
  private selectNext(): WaitingStart | undefined {
    const turn: StartKind = this.lastKind === 'first' ? 'restart' : 'first';
    return this.findOldest(turn) ?? this.findOldest(this.lastKind);
  }

  private findOldest(kind: StartKind): WaitingStart | undefined {
    let oldest: WaitingStart | undefined;
    for (const containerKind of this.listUnpaused()) {
      const [waiting] = this.queues[kind][containerKind];
      if (waiting !== undefined && (oldest === undefined || waiting.order < oldest.order))
        oldest = waiting;
    }
    return oldest;
  }

  private run({ containerKind, start }: WaitingStart): void {
    let holdsSlot = true;
    const release = (): void => {
      timer.cancel();
      if (!holdsSlot) return;
      holdsSlot = false;
      this.running[containerKind] -= 1;
      this.startWaiting();
    };
    this.running[containerKind] += 1;
    const timer = this.clock.setTimer(START_TIMEOUT_MS, release);
    void start().finally(release);
  }
}
