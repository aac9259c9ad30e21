import type { ReplicaRecord } from '@cloudless/api/store';
import {
  holdsResources,
  listReplicasHeldBy,
  type ClusterState,
  type ClusterView,
  type RecordChange,
} from '@cloudless/cluster-state';
import {
  addResources,
  NO_RESOURCES,
  subtractResources,
  toResources,
  type Resources,
} from '@cloudless/scheduler';
import { toRequests } from '../placement/scheduler-input.js';

/** The number of replicas that hold resources on a node, and the sum of their requests. */
export interface NodeAllocation extends Resources {
  readonly replicas: number;
}

type AllocationView = Pick<ClusterView, 'replicasOn' | 'version'>;

/**
 * The resources that replicas hold on each node. The sum of a node is computed at the first read
 * and then follows every change of a replica, so that a read does not walk the replicas of the node.
 */
export class NodeAllocations {
  private readonly sums = new Map<string, NodeAllocation>();
  private readonly unsubscribe: () => void;
  private walkedCount = 0;

  constructor(private readonly state: Pick<ClusterState, 'view' | 'subscribe'>) {
    this.unsubscribe = state.subscribe((changes) => {
      for (const change of changes) this.applyChange(change);
    });
  }

  /** Number of replicas that reads have walked since the start. */
  get walkedReplicas(): number {
    return this.walkedCount;
  }

  /** Returns the allocation of a node. All 0 for a node without replicas and for an unknown node. */
  getAllocated(nodeId: string): NodeAllocation {
    const known = this.sums.get(nodeId);
    if (known !== undefined) return known;
    const view = this.state.view();
    const sum = sumAllocated(view, nodeId);
    this.walkedCount += sum.replicas;
    if (view.node(nodeId) !== undefined) this.sums.set(nodeId, sum);
    return sum;
  }

  close(): void {
    this.unsubscribe();
  }

  private applyChange({ kind, id, before, after }: RecordChange): void {
    if (kind === 'replica') {
      if (before !== undefined) this.add(before, -1);
      if (after !== undefined) this.add(after, 1);
    } else if (kind === 'node' && after === undefined) this.sums.delete(id);
    // The template of a version does not change while replicas use the version. Should that happen,
    // all sums are computed again.
    else if (kind === 'version' && before !== undefined) this.sums.clear();
  }

  /** @param sign - 1 adds the replica to the sum of its node, -1 removes the replica. */
  private add(replica: ReplicaRecord, sign: 1 | -1): void {
    const sum = this.sums.get(replica.nodeId);
    if (sum === undefined || !holdsResources(replica)) return;
    const requests = getRequests(this.state.view(), replica);
    this.sums.set(replica.nodeId, {
      ...(sign === 1 ? addResources(sum, requests) : subtractResources(sum, requests)),
      replicas: sum.replicas + sign,
    });
  }
}

/** Sums what replicas hold on a node, from all records of these replicas. */
export function sumAllocated(view: AllocationView, nodeId: string): NodeAllocation {
  const held = listReplicasHeldBy(view, nodeId);
  let sums = NO_RESOURCES;
  for (const replica of held) sums = addResources(sums, getRequests(view, replica));
  return { ...sums, replicas: held.length };
}

function getRequests(
  view: Pick<ClusterView, 'version'>,
  { uid, version }: ReplicaRecord,
): Resources {
  return toResources(toRequests(view.version(uid, version)?.template));
}
