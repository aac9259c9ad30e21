import type { Clock } from '@cloudless/base';
import type { ClusterState } from '@cloudless/cluster-state';
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
  const calls = metrics.counter({ name: 'cloudless_rpc_calls_total', help: 'Calls that ended, by method and code.', labels: ['method', 'code'] });
  const duration = metrics.histogram({
    name: 'cloudless_rpc_duration_seconds',
    help: 'Time of unary calls, by method.',
    labels: ['method'],
    buckets: [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10],
  });
  const commits = metrics.counter({ name: 'cloudless_state_commits_total', help: 'Transactions of the state store that the view has shown.' });
  metrics.gauge({
    name: 'cloudless_nodes',
    help: 'Nodes, by whether their session is alive.',
    labels: ['alive'],
    collect: (gauge) => {
      const counts = { true: 0, false: 0 };
      for (const { value } of state.view().nodes()) counts[controllers.nodes.status(value.id).alive ? 'true' : 'false'] += 1;
      gauge.set(counts.true, { alive: 'true' });
      gauge.set(counts.false, { alive: 'false' });
    },
  });
  metrics.gauge({
    name: 'cloudless_replicas',
    help: 'Replicas that have a record, by what they are.',
    labels: ['state'],
    collect: (gauge) => {
      const counts = { ready: 0, unready: 0, unplaced: 0, leaving: 0, lost: 0 };
      for (const { value } of state.view().replicas()) {
        if (value.lost) counts.lost += 1;
        else if (!value.desiredRunning) counts.leaving += 1;
        else if (value.nodeId === '') counts.unplaced += 1;
        else counts[value.ready ? 'ready' : 'unready'] += 1;
      }
      for (const [name, count] of Object.entries(counts)) gauge.set(count, { state: name });
    },
  });
  metrics.gauge({
    name: 'cloudless_workloads',
    help: 'Declared workloads.',
    collect: (gauge) => gauge.set([...state.view().workloads()].length),
  });
  const unsubscribe = state.subscribe(() => commits.inc());
  return {
    interceptor: (clock) => (next) => async (request) => {
      const method = request.method.name;
      const began = clock.now();
      try {
        const response = await next(request);
        calls.inc(1, { method, code: 'ok' });
        if (!response.stream) duration.observe((clock.now() - began) / 1_000, { method });
        return response;
      } catch (reason) {
        calls.inc(1, { method, code: Code[ConnectError.from(reason).code] ?? 'Unknown' });
        throw reason;
      }
    },
    close: unsubscribe,
  };
}
