import type { AgentMessage, CoordinatorMessage } from '@cloudless/api';
import type { LeaderRecord } from '@cloudless/api/store';
import type { RecordKind } from '@cloudless/cluster-state';
import type { Checker } from './commit-checkers.js';

/** Kinds of records that a coordinator writes without leading: those of elections and presence. */
const WRITTEN_BY_ALL: readonly RecordKind[] = ['meta', 'leader', 'leaderlease', 'coordinator'];

/**
 * Invariant 7, with several coordinators: every decision is committed by the coordinator whose
 * leader record is the newest, in the term of that record; and epochs only grow.
 */
export function createLeadershipChecker(): Checker {
  let newest = 0n;
  return ({ changes, nodeFacts: { epoch } }) => {
    const problems: string[] = [];
    for (const { kind, after } of changes) {
      if (kind !== 'leader') continue;
      const next = (after as LeaderRecord | undefined)?.epoch ?? 0n;
      if (next <= newest) problems.push(`7: epoch ${next} follows epoch ${newest}`);
      newest = next;
    }
    const decisions = changes.filter(({ kind }) => !WRITTEN_BY_ALL.includes(kind));
    if (decisions.length > 0 && epoch !== newest)
      problems.push(
        `7: ${epoch === undefined ? 'a follower' : `the leader of epoch ${epoch}`} changed ${decisions[0]?.kind} ${decisions[0]?.id}, but the leader has epoch ${newest}`,
      );
    return problems;
  };
}

/** A coordinator as {@link findLeaders} sees it. */
export interface PossibleLeader {
  readonly id: string;
  /** True while the process runs and considers itself the leader, by its own clock. */
  readonly isActing: boolean;
}

/** Returns a violation when more than one coordinator acts as the leader at this moment. */
export function findSeveralLeaders(coordinators: readonly PossibleLeader[]): readonly string[] {
  const acting = coordinators.filter(({ isActing }) => isActing).map(({ id }) => id);
  return acting.length > 1 ? [`7: ${acting.join(' and ')} act as leader at the same time`] : [];
}

/**
 * Returns a violation when a coordinator sends an order of an older term than the newest: its lease
 * had run out before the next leader was elected.
 * @param leaderEpoch - Epoch of the newest leader record.
 */
export function findLateOrder(
  { message }: AgentMessage | CoordinatorMessage,
  leaderEpoch: bigint,
): string | undefined {
  if (message?.case !== 'order' || message.value.epoch >= leaderEpoch) return undefined;
  const { epoch, order, replicaId } = message.value;
  return `7: the leader of epoch ${epoch} orders to ${order.case ?? '?'} ${replicaId}, but the leader has epoch ${leaderEpoch}`;
}
