import { CloudlessError, errorFields, type Log } from '@cloudless/base';

/**
 * Another coordinator leads: the transaction was not committed, and all later commits of this
 * coordinator fail too.
 */
export class LeadershipLostError extends CloudlessError {
  /** @param epoch - The epoch of the leadership that ended. */
  constructor(epoch: bigint, cause?: unknown) {
    super(
      'LEADERSHIP_LOST',
      `this coordinator no longer leads (its epoch was ${epoch}); ask the one that does`,
      { cause },
    );
  }
}

/** Remembers that the leadership was lost, and notifies each listener once. */
export class LeadershipLossRecord {
  private lost: LeadershipLostError | undefined;
  private readonly listeners = new Set<(reason: LeadershipLostError) => void>();

  constructor(private readonly log: Log) {}

  /** The error of the loss; undefined before the loss. */
  get error(): LeadershipLostError | undefined {
    return this.lost;
  }

  /**
   * Records the loss; later calls return the first error.
   * @param epoch - The epoch of the leadership that ended.
   * @param cause - The conflict that showed the loss, if any.
   */
  record(epoch: bigint, cause?: unknown): LeadershipLostError {
    if (this.lost !== undefined) return this.lost;
    const error = (this.lost = new LeadershipLostError(epoch, cause));
    this.log.error('leadership lost', { epoch, ...errorFields(error) });
    const listeners = [...this.listeners];
    this.listeners.clear();
    for (const listener of listeners) listener(error);
    return error;
  }

  /**
   * Calls `listener` once when the leadership is lost, immediately when it is lost already.
   * @returns A function that ends the subscription.
   */
  onLost(listener: (reason: LeadershipLostError) => void): () => void {
    if (this.lost !== undefined) listener(this.lost);
    else this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }
}
