import type { Clock } from '@cloudless/base';
import type { ReplicaRecord } from '@cloudless/api/store';
import { isLive, type ClusterState, type Stored } from '@cloudless/cluster-state';
import type { Controllers } from '@cloudless/controllers';
import type { Metrics } from '@cloudless/observability';
import { Code, ConnectError, type Interceptor } from '@connectrpc/connect';

/** What the coordinator measures of itself. */
export interface ClusterMetrics {
  /** Counts and times calls. */
  interceptor(clock: Clock): Interceptor;
  close(): void;
}

/** Registers the cluster's gauges, read when they are scraped, and the counters of calls and commits. */
export function registerClusterMetrics(metrics: Metrics, state: ClusterState, controllers: Controllers): ClusterMetrics {
  const calls = metrics.counter({
    name: 'cloudless_rpc_calls_total',
    help: 'Calls that ended, by method and code.',
    labels: ['method', 'code'],
  });
  const duration = metrics.histogram({
    name: 'cloudless_rpc_duration_seconds',
    help: 'Time of unary calls, by method.',
    labels: ['method'],
    buckets: [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10],
  });
  const commits = metrics.counter({
    name: 'cloudless_state_commits_total',
    help: 'Transactions of the state store that the view has shown.',
  });
  const nodes = metrics.gauge({ name: 'cloudless_nodes', help: 'Nodes, by whether their session is alive.', labels: ['alive'] });
  const replicas = metrics.gauge({
    name: 'cloudless_replicas',
    help: 'Replicas that have a record, by what they are.',
    labels: ['state'],
  });
  const workloads = metrics.gauge({ name: 'cloudless_workloads', help: 'Declared workloads.' });
  metrics.onExpose(() => {
    const view = state.view();
    const alive = [...view.nodes()].filter(({ value }) => controllers.nodes.status(value.id).alive).length;
    nodes.set(alive, { alive: 'true' });
    nodes.set([...view.nodes()].length - alive, { alive: 'false' });
    workloads.set([...view.workloads()].length);
    for (const [name, count] of Object.entries(countReplicas(view.replicas()))) replicas.set(count, { state: name });
  });
  const unsubscribe = state.subscribe(() => commits.add());
  return {
    interceptor: (clock) => (next) => async (request) => {
      const method = request.method.name;
      const began = clock.now();
      try {
        const response = await next(request);
        calls.add(1, { method, code: 'ok' });
        if (!response.stream) duration.observe((clock.now() - began) / 1_000, { method });
        return response;
      } catch (reason) {
        calls.add(1, { method, code: codeName(ConnectError.from(reason).code) });
        throw reason;
      }
    },
    close: unsubscribe,
  };
}

function countReplicas(all: Iterable<Stored<ReplicaRecord>>): Readonly<Record<string, number>> {
  const counts = { ready: 0, unready: 0, unplaced: 0, leaving: 0, lost: 0, ended: 0 };
  for (const { value } of all) {
    if (value.lost) counts.lost += 1;
    else if (!isLive(value)) counts.ended += 1;
    else if (!value.desiredRunning) counts.leaving += 1;
    else if (value.nodeId === '') counts.unplaced += 1;
    else counts[value.ready ? 'ready' : 'unready'] += 1;
  }
  return counts;
}

/** As the API spells codes: `already_exists`. */
function codeName(code: Code): string {
  return (Code[code] ?? 'Unknown').replaceAll(/(?<=[a-z])[A-Z]/g, (letter) => `_${letter}`).toLowerCase();
}
