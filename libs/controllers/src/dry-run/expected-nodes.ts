import { NodeStatus_Phase as NodePhase } from '@cloudless/api';
import type { ReplicaRecord } from '@cloudless/api/store';
import type { ClusterView, NodeLiveStatus } from '@cloudless/cluster-state';
import type { Cluster } from '@cloudless/scheduler';
import type { NodeDirectory } from '../node/node-directory.js';
import { toSchedulerNode } from '../placement/scheduler-input.js';
import type { ReadinessTracker } from '../rollout/readiness-tracker.js';

export interface ExpectedNodesSources {
  readonly view: Pick<ClusterView, 'node' | 'nodes'>;
  readonly nodes: Pick<NodeDirectory, 'status' | 'isAlive'>;
  readonly readiness: Pick<ReadinessTracker, 'readyForMs'>;
}

/**
 * The nodes as predictions see them. After a change of the leader, nodes that are not lost have a
 * lease, and their agents connect within moments: no failure of such an expected node is known. A
 * prediction therefore treats the node as connected and its ready replicas as available. Once the
 * lease has ended without a connection, the node counts as lost.
 */
export class ExpectedNodes {
  constructor(private readonly sources: ExpectedNodesSources) {}

  /** Returns the live status of a node, with `alive` true for an expected node. */
  status(nodeId: string): NodeLiveStatus {
    const status = this.sources.nodes.status(nodeId);
    return this.isExpectedWith(nodeId, status) ? { ...status, alive: true } : status;
  }

  /** Returns true for a node that is alive or expected. */
  isAlive(nodeId: string): boolean {
    return this.sources.nodes.isAlive(nodeId) || this.isExpected(nodeId);
  }

  /** Returns the milliseconds for which a replica is available; infinite on an expected node. */
  readyForMs(replica: ReplicaRecord): number | undefined {
    const readyForMs = this.sources.readiness.readyForMs(replica);
    if (readyForMs !== undefined || !replica.ready || !replica.desiredRunning) return readyForMs;
    return this.isExpected(replica.nodeId) ? Number.POSITIVE_INFINITY : undefined;
  }

  /** Makes the expected nodes accept replicas in a copy of the scheduler's model. */
  putInto(copy: Pick<Cluster, 'upsertNode'>): void {
    for (const { value } of this.sources.view.nodes())
      if (this.isExpected(value.id)) copy.upsertNode(toSchedulerNode(value, this.status(value.id)));
  }

  /**
   * Returns a copy of a model with the expected nodes; the model itself when no node is expected.
   */
  putIntoCopyOf(cluster: Cluster): Cluster {
    if (![...this.sources.view.nodes()].some(({ value }) => this.isExpected(value.id)))
      return cluster;
    const copy = cluster.clone();
    this.putInto(copy);
    return copy;
  }

  private isExpected(nodeId: string): boolean {
    const { nodes } = this.sources;
    return !nodes.isAlive(nodeId) && this.isExpectedWith(nodeId, nodes.status(nodeId));
  }

  private isExpectedWith(nodeId: string, { phase }: NodeLiveStatus): boolean {
    return phase === NodePhase.UNKNOWN && this.sources.view.node(nodeId)?.value.lost === false;
  }
}
