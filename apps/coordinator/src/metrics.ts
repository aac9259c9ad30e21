import type { Meter } from '@cloudless/base';
import type { ClusterState } from '@cloudless/cluster-state';
import { ReplicaCounts } from './replica-counts.js';

/**
 * Registers the numbers of nodes, replicas and workloads. A scrape reads counters and walks no
 * records, so its cost does not grow with the cluster.
 */
export function registerClusterMetrics(
  metrics: Meter,
  state: ClusterState,
  liveness: { readonly nodes: { readonly aliveCount: number } },
): void {
  const nodes = metrics.gauge({
    name: 'cloudless_nodes',
    help: 'Nodes, by whether their session is alive.',
    labels: ['alive'],
  });
  const replicas = metrics.gauge({
    name: 'cloudless_replicas',
    help: 'Replicas with a record, by state.',
    labels: ['state'],
  });
  const workloads = metrics.gauge({ name: 'cloudless_workloads', help: 'Declared workloads.' });
  const replicaCounts = new ReplicaCounts(state);
  metrics.onExpose(() => {
    const { nodeCount, workloadCount } = state.view();
    const alive = Math.min(liveness.nodes.aliveCount, nodeCount);
    nodes.set(alive, { alive: 'true' });
    nodes.set(nodeCount - alive, { alive: 'false' });
    workloads.set(workloadCount);
    for (const [name, count] of Object.entries(replicaCounts.counts))
      replicas.set(count, { state: name });
  });
}
