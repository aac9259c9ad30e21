import { FairQueue } from './fair-queue.js';

interface Waiting {
  readonly go: () => void;
}

/**
 * Limits the messages that all streams together produce in each iteration of the event loop.
 * Without the limit, hundreds of watches that open together would block the event loop until all
 * their snapshots are produced.
 */
export class StreamTurns {
  private readonly queue = new FairQueue<Waiting>();
  private given = 0;
  private turnAwaited = false;

  /**
   * @param perIteration - Messages of all streams together in one iteration; 1 or more.
   * @param nextIteration - Runs `action` in the next iteration of the event loop.
   */
  constructor(
    private readonly perTurn: number,
    private readonly nextTurn: (action: () => void) => void = setImmediate,
  ) {}

  /**
   * Resolves when the stream may produce its next message. Principals take turns, however many
   * streams each has.
   * @param signal - Signal of the call. A call that has ended does not wait, so that its handler
   *   can end as well.
   */
  take(principal: string, signal: AbortSignal): Promise<void> {
    if (signal.aborted) return Promise.resolve();
    if (this.queue.size === 0 && this.given < this.perTurn) {
      this.give();
      return Promise.resolve();
    }
    return new Promise((resolve) => {
      const onAbort = (): void => {
        this.queue.remove(principal, waiting);
        resolve();
      };
      const waiting: Waiting = {
        go: () => {
          signal.removeEventListener('abort', onAbort);
          resolve();
        },
      };
      signal.addEventListener('abort', onAbort, { once: true });
      this.queue.push(principal, waiting);
    });
  }

  private give(): void {
    this.given += 1;
    if (this.turnAwaited) return;
    this.turnAwaited = true;
    this.nextTurn(() => {
      this.turnAwaited = false;
      this.given = 0;
      while (this.given < this.perTurn) {
        const next = this.queue.take(() => true);
        if (next === undefined) return;
        this.give();
        next.go();
      }
    });
  }
}
