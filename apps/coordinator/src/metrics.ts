import type { Meter } from '@cloudless/base';
import type { ReplicaRecord } from '@cloudless/api/store';
import { isLive, type ClusterState, type Stored } from '@cloudless/cluster-state';
import type { Controllers } from '@cloudless/controllers';

/** Registers the numbers of nodes, replicas and workloads. The gauges are set at each scrape. */
export function registerClusterMetrics(
  metrics: Meter,
  state: ClusterState,
  controllers: Controllers,
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
  metrics.onExpose(() => {
    const view = state.view();
    const alive = [...view.nodes()].filter(
      ({ value }) => controllers.nodes.status(value.id).alive,
    ).length;
    nodes.set(alive, { alive: 'true' });
    nodes.set([...view.nodes()].length - alive, { alive: 'false' });
    workloads.set([...view.workloads()].length);
    for (const [name, count] of Object.entries(countReplicas(view.replicas())))
      replicas.set(count, { state: name });
  });
}

/** Counts replicas by state. The first state that applies counts. */
function countReplicas(
  replicas: Iterable<Stored<ReplicaRecord>>,
): Readonly<Record<string, number>> {
  const counts = { ready: 0, unready: 0, unplaced: 0, leaving: 0, lost: 0, ended: 0 };
  for (const { value } of replicas) {
    if (value.lost) counts.lost += 1;
    else if (!isLive(value)) counts.ended += 1;
    else if (!value.desiredRunning) counts.leaving += 1;
    else if (value.nodeId === '') counts.unplaced += 1;
    else counts[value.ready ? 'ready' : 'unready'] += 1;
  }
  return counts;
}
