import { FairQueue } from './fair-queue.js';

interface WaitingStream {
  readonly resume: () => void;
}

/**
 * Limits the messages that all streams together produce in each iteration of the event loop.
 * Without the limit, hundreds of watches that open together would block the event loop until all
 * their snapshots are produced.
 */
export class EventLoopQuota {
  private readonly queue = new FairQueue<WaitingStream>();
  /** Messages granted in this iteration. */
  private granted = 0;
  private isIterationScheduled = false;

  /**
   * @param perIteration - Messages of all streams together in one iteration, 1 or more.
   * @param nextIteration - Runs `action` in the next iteration of the event loop.
   */
  constructor(
    private readonly perIteration: number,
    private readonly nextIteration: (action: () => void) => void = setImmediate,
  ) {}

  /**
   * Resolves when the stream may produce its next message. Principals take turns, however many
   * streams each principal has. Never rejects.
   * @param signal - Signal of the call. The promise resolves at once when the signal is aborted, so
   *   that the handler can end.
   */
  acquire(principal: string, signal: AbortSignal): Promise<void> {
    if (signal.aborted) return Promise.resolve();
    if (this.queue.size === 0 && this.granted < this.perIteration) {
      this.grant();
      return Promise.resolve();
    }
    return new Promise((resolve) => {
      const onAbort = (): void => {
        this.queue.remove(principal, waiting);
        resolve();
      };
      const waiting: WaitingStream = {
        resume: () => {
          signal.removeEventListener('abort', onAbort);
          resolve();
        },
      };
      signal.addEventListener('abort', onAbort, { once: true });
      this.queue.push(principal, waiting);
    });
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
        next.resume();
      }
    });
  }
}
