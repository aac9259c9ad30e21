import { toNodeId, type Clock } from '@cloudless/base';
import type { NodeRecord } from '@cloudless/api/store';
import type { ClusterState } from '@cloudless/cluster-state';
import { createCluster } from '@cloudless/scheduler';
import { NodeAllocations } from './node/node-allocations.js';
import type { NodeDirectory } from './node/node-directory.js';
import { toSchedulerNode } from './placement/scheduler-input.js';
import { WorkloadPresenter } from './workload/workload-presenter.js';

export interface ReadModelOptions {
  readonly state: ClusterState;
  /** The live status of nodes, which another coordinator knows. */
  readonly nodes: Pick<NodeDirectory, 'status' | 'isAlive' | 'subscribe'>;
  readonly clock: Clock;
}

/** What reads show that records alone do not say. Close it after the last read. */
export interface ReadModel {
  readonly presenter: WorkloadPresenter;
  readonly placements: NodeAllocations;
  close(): void;
}

/**
 * Opens what the reads of a coordinator need that does not lead. The model of the scheduler has only
 * nodes: the targets of a GLOBAL workload follow from the nodes, without the reservations on them.
 */
export function openReadModel({ state, nodes, clock }: ReadModelOptions): ReadModel {
  const cluster = createCluster();
  const upsert = (node: NodeRecord): void =>
    cluster.upsertNode(toSchedulerNode(node, nodes.status(node.id)));
  for (const { value } of state.view().nodes()) upsert(value);
  const unsubscribes = [
    state.subscribe((changes) => {
      for (const { kind, id, after } of changes) {
        if (kind !== 'node') continue;
        if (after === undefined) cluster.removeNode(toNodeId(id));
        else upsert(after);
      }
    }),
    nodes.subscribe((nodeId) => {
      const node = state.view().node(nodeId)?.value;
      if (node !== undefined) upsert(node);
    }),
  ];
  const placements = new NodeAllocations(state);
  const presenter = new WorkloadPresenter(state, nodes, { cluster, clock });
  return {
    presenter,
    placements,
    close: () => {
      presenter.close();
      placements.close();
      for (const unsubscribe of unsubscribes) unsubscribe();
    },
  };
}
