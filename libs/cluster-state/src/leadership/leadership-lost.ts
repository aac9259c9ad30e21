import { CloudlessError, errorFields, type Log } from '@cloudless/base';

/**
 * Another coordinator leads. Nothing was committed, and no later commit of this coordinator will
 * be.
 */
export class LeadershipLostError extends CloudlessError {
  /** @param epoch - Of the leadership that ended. */
  constructor(epoch: bigint, cause?: unknown) {
    super(
      'unavailable',
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

  /** Undefined as long as nobody has taken the leadership. */
  get error(): LeadershipLostError | undefined {
    return this.lost;
  }

  /**
   * Records the loss; later calls return the first error.
   * @param epoch - Of the leadership that ended.
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
   * Calls `listener` once, immediately when the leadership is lost already. @returns Ends the
   * subscription.
   */
  onLost(listener: (reason: LeadershipLostError) => void): () => void {
    if (this.lost !== undefined) listener(this.lost);
    else this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }
}
