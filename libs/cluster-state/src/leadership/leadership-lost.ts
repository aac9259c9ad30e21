import { CloudlessError } from '@cloudless/base';

/** The leader as this coordinator knows it. */
export interface KnownLeader {
  /** Number of the leadership. */
  readonly epoch: bigint;
  /** URL at which agents, clients and other coordinators reach the leader; empty when it has none. */
  readonly address: string;
  /** Id of the coordinator, as in `/controller/<id>`; empty for a single coordinator. */
  readonly coordinatorId: string;
}

/**
 * This coordinator does not lead: the transaction was not committed. The metadata of the error tell
 * clients the leader, as far as this coordinator knows it: `leader_address`, `leader_id` and
 * `leader_epoch`.
 */
export class NotLeaderError extends CloudlessError {
  /** @param leader - The coordinator to ask instead, if known. */
  constructor(
    readonly leader: KnownLeader | undefined,
    message = describeLeader(leader),
    cause?: unknown,
  ) {
    super('LEADERSHIP_LOST', message, {
      ...(cause === undefined ? {} : { cause }),
      ...(leader === undefined ? {} : { metadata: toMetadata(leader) }),
    });
  }
}

/** The leadership under which the transaction was made has ended: nothing was committed. */
export class LeadershipLostError extends NotLeaderError {
  /**
   * @param epoch - The epoch of the leadership that ended.
   * @param leader - The coordinator to ask instead, if known.
   */
  constructor(epoch: bigint, cause?: unknown, leader?: KnownLeader) {
    super(
      leader,
      `this coordinator no longer leads (its epoch was ${epoch}); ask the one that does`,
      cause,
    );
  }
}

function describeLeader(leader: KnownLeader | undefined): string {
  if (leader === undefined)
    return 'this coordinator follows, and no coordinator leads at the moment; retry in a few seconds';
  const name = [leader.coordinatorId, leader.address].find((text) => text !== '');
  return `this coordinator follows; ask the leader${name === undefined ? '' : ` ${name}`}`;
}

function toMetadata({ epoch, address, coordinatorId }: KnownLeader): Record<string, string> {
  return {
    leader_epoch: String(epoch),
    ...(address === '' ? {} : { leader_address: address }),
    ...(coordinatorId === '' ? {} : { leader_id: coordinatorId }),
  };
}
