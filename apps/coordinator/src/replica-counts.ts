import type { ReplicaRecord } from '@cloudless/api/store';
import { isLive, type ClusterState } from '@cloudless/cluster-state';

/** States that replicas are counted by. */
export type ReplicaState = 'ready' | 'unready' | 'unplaced' | 'leaving' | 'lost' | 'ended';

/**
 * Numbers of replicas by state. Walks all replicas once, when it is created, and then follows every
 * change.
 */
export class ReplicaCounts {
  readonly counts: Readonly<Record<ReplicaState, number>>;

  /** @param state - Followed until it is closed. */
  constructor(state: Pick<ClusterState, 'view' | 'subscribe'>) {
    const counts = { ready: 0, unready: 0, unplaced: 0, leaving: 0, lost: 0, ended: 0 };
    this.counts = counts;
    for (const { value } of state.view().replicas()) counts[getReplicaState(value)] += 1;
    state.subscribe((changes) => {
      for (const { kind, before, after } of changes) {
        if (kind !== 'replica') continue;
        if (before !== undefined) counts[getReplicaState(before)] -= 1;
        if (after !== undefined) counts[getReplicaState(after)] += 1;
      }
    });
  }
}

/** Returns the state that a replica counts as. The first state that applies counts. */
export function getReplicaState(replica: ReplicaRecord): ReplicaState {
  if (replica.lost) return 'lost';
  if (!isLive(replica)) return 'ended';
  if (!replica.desiredRunning) return 'leaving';
  if (replica.nodeId === '') return 'unplaced';
  return replica.ready ? 'ready' : 'unready';
}
