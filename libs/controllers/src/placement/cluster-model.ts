import { toNodeId, toReplicaId } from '@cloudless/base';
import type { NodeRecord, ReplicaRecord } from '@cloudless/api/store';
import {
  holdsResources,
  type ClusterState,
  type ClusterView,
  type RecordChange,
} from '@cloudless/cluster-state';
import type { Cluster } from '@cloudless/scheduler';
import type { NodeDirectory } from '../node/node-directory.js';
import { isNominated } from '../preemption/nominations.js';
import { toReservation, toSchedulerNode } from './scheduler-input.js';

export interface ClusterModelDeps {
  readonly state: ClusterState;
  readonly nodes: NodeDirectory;
  /** An empty model. Only this class may write to the model. */
  readonly cluster: Cluster;
}

/**
 * Keeps the scheduler's model up to date with the state. A committed placement is reserved before
 * the commit resolves, so two placements never reserve the same resources.
 */
export class ClusterModel {
  private readonly unsubscribes: (() => void)[];

  constructor(private readonly deps: ClusterModelDeps) {
    const view = deps.state.view();
    for (const node of view.nodes()) this.upsertNode(node.value);
    for (const replica of view.replicas()) this.upsertReplica(view, replica.value);
    this.unsubscribes = [
      deps.state.subscribe((changes) => this.apply(changes)),
      deps.nodes.subscribe((nodeId) => this.refreshNode(nodeId)),
    ];
  }

  close(): void {
    for (const unsubscribe of this.unsubscribes) unsubscribe();
  }

  private apply(changes: readonly RecordChange[]): void {
    const view = this.deps.state.view();
    for (const { kind, id, before, after } of changes) {
      if (kind === 'node') {
        if (after === undefined) this.deps.cluster.removeNode(toNodeId(id));
        else this.upsertNode(after);
      } else if (kind === 'replica') {
        if (after !== undefined) this.upsertReplica(view, after);
        else if (before !== undefined) this.deps.cluster.release(toReplicaId(before.id));
      }
    }
  }

  private refreshNode(nodeId: string): void {
    const node = this.deps.state.view().node(nodeId);
    if (node !== undefined) this.upsertNode(node.value);
  }

  private upsertNode(node: NodeRecord): void {
    this.deps.cluster.upsertNode(toSchedulerNode(node, this.deps.nodes.status(node.id)));
  }

  private upsertReplica(view: ClusterView, replica: ReplicaRecord): void {
    const { cluster } = this.deps;
    const workload = view.workload(replica.uid);
    const template = view.version(replica.uid, replica.version)?.template;
    cluster.release(toReplicaId(replica.id));
    if (!holdsResources(replica) && !isNominated(replica)) return;
    if (workload === undefined || template === undefined) return;
    cluster.reserve(toReservation(workload.value, replica, template));
  }
}
