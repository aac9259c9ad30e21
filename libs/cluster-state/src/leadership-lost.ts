import { CloudlessError } from '@cloudless/base';

/** Another coordinator leads by now: nothing was committed, and nothing that this one plans will be. */
export class LeadershipLostError extends CloudlessError {
  /** @param epoch - Of the leadership that ended. */
  constructor(epoch: bigint, cause: unknown) {
    super('unavailable', `this coordinator no longer leads (its epoch was ${epoch}); ask the one that does`, { cause });
  }
}
