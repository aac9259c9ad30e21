import { FairQueue } from './fair-queue.js';

/**
 * Limits the actions that all clients together cause in each iteration of the event loop, such as
 * messages of streams or the begin of connections. Without the limit, hundreds of watches that open
 * together would block the event loop until all their snapshots are produced. Clients take turns,
 * however many actions of each of them wait.
 */
export class EventLoopQuota {
  private readonly queue = new FairQueue<() => void>();
  /** Actions that ran in this iteration. */
  private granted = 0;
  private isIterationScheduled = false;

  /**
   * @param perIteration - Actions of all clients together in one iteration, 1 or more.
   * @param nextIteration - Runs `action` in the next iteration of the event loop.
   */
  constructor(
    private readonly perIteration: number,
    private readonly nextIteration: (action: () => void) => void = setImmediate,
  ) {}

  /**
   * Runs an action of a client now, or in a later iteration.
   * @param client - Key of the client, such as its principal or address.
   * @param action - Must not throw.
   * @returns A function that withdraws an action that has not run yet.
   */
  run(client: string, action: () => void): () => void {
    if (this.isFree) {
      this.grant();
      action();
      return () => undefined;
    }
    this.queue.push(client, action);
    return () => void this.queue.remove(client, action);
  }

  /**
   * Resolves when a stream of a client may produce its next message. Never rejects.
   * @param client - As for {@link run}.
   * @param signal - Signal of the call. The promise resolves at once when the signal is aborted, so
   *   that the handler can end.
   */
  acquire(client: string, signal: AbortSignal): Promise<void> {
    if (signal.aborted) return Promise.resolve();
    if (this.isFree) {
      this.grant();
      return Promise.resolve();
    }
    return new Promise((resolve) => {
      const onAbort = (): void => {
        withdraw();
        resolve();
      };
      const withdraw = this.run(client, () => {
        signal.removeEventListener('abort', onAbort);
        resolve();
      });
      signal.addEventListener('abort', onAbort, { once: true });
    });
  }

  /** True when an action may run at once: the limit of this iteration has room, and none waits. */
  private get isFree(): boolean {
    return this.queue.size === 0 && this.granted < this.perIteration;
  }

  private grant(): void {
    this.granted += 1;
    if (this.isIterationScheduled) return;
    this.isIterationScheduled = true;
    this.nextIteration(() => {
      this.isIterationScheduled = false;
      this.granted = 0;
      while (this.granted < this.perIteration) {
        const next = this.queue.shift(() => true);
        if (next === undefined) return;
        this.grant();
        next();
      }
    });
  }
}
