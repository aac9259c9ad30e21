import { CloudlessError, errorFields, type Log } from '@cloudless/base';

/** Another coordinator leads by now: nothing was committed, and nothing that this one plans will be. */
export class LeadershipLostError extends CloudlessError {
  /** @param epoch - Of the leadership that ended. */
  constructor(epoch: bigint, cause?: unknown) {
    super('unavailable', `this coordinator no longer leads (its epoch was ${epoch}); ask the one that does`, { cause });
  }
}

/** Remembers that the leadership was lost, and tells of it once. */
export class LeadershipLoss {
  private lost: LeadershipLostError | undefined;
  private readonly listeners = new Set<(reason: LeadershipLostError) => void>();

  constructor(private readonly log: Log) {}

  /** Undefined as long as nobody has taken the leadership. */
  get error(): LeadershipLostError | undefined {
    return this.lost;
  }

  /** @param epoch - Of the leadership that ended. @param cause - The conflict that showed it, if any. */
  note(epoch: bigint, cause?: unknown): LeadershipLostError {
    if (this.lost !== undefined) return this.lost;
    const error = (this.lost = new LeadershipLostError(epoch, cause));
    this.log.error('leadership lost', { epoch, ...errorFields(error) });
    const listeners = [...this.listeners];
    this.listeners.clear();
    for (const listener of listeners) listener(error);
    return error;
  }

  /** Calls `listener` once, at once if the leadership is lost already. @returns Ends the subscription. */
  onLost(listener: (reason: LeadershipLostError) => void): () => void {
    if (this.lost !== undefined) listener(this.lost);
    else this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }
}
