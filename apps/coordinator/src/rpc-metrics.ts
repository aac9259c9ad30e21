import type { Metrics } from '@cloudless/observability';
import { CALL_PRIORITIES, type RpcLoad } from '@cloudless/rpc-node/server';

/**
 * Registers the load and the refusals of the API server. The metrics are set at each scrape.
 * @param getLoad - Returns the current load; its totals count since the start of the server.
 */
export function registerRpcMetrics(metrics: Metrics, getLoad: () => RpcLoad): void {
  const priorityLabels = ['lane'];
  const running = metrics.gauge({
    name: 'cloudless_rpc_running',
    help: 'Calls whose handlers run, by priority.',
    labels: priorityLabels,
  });
  const waiting = metrics.gauge({
    name: 'cloudless_rpc_waiting',
    help: 'Calls that wait in the queue, by priority.',
    labels: priorityLabels,
  });
  const streams = metrics.gauge({
    name: 'cloudless_rpc_streams',
    help: 'Open streams and long-running calls of users.',
  });
  const connections = metrics.gauge({
    name: 'cloudless_rpc_connections',
    help: 'Open connections.',
  });
  const overload = metrics.gauge({
    name: 'cloudless_rpc_overload_level',
    help: '0: none; 1: further reads of a client are refused; 2: reads are refused; 3: reads and writes are refused.',
  });
  const bytes = metrics.gauge({
    name: 'cloudless_rpc_waiting_bytes',
    help: 'Memory of waiting requests and of unread responses.',
    labels: ['what'],
  });
  const admitted = createTotal(
    metrics,
    'cloudless_rpc_admitted_total',
    'Calls that were admitted, by priority.',
    priorityLabels,
  );
  const shed = createTotal(
    metrics,
    'cloudless_rpc_shed_total',
    'Calls refused because of load, by priority and reason.',
    [...priorityLabels, 'reason'],
  );
  const streamsRefused = createTotal(
    metrics,
    'cloudless_rpc_streams_refused_total',
    'Streams refused because too many were open.',
  );
  const slowReaders = createTotal(
    metrics,
    'cloudless_rpc_readers_cut_total',
    'Calls ended because the client did not read the response.',
  );
  const dropped = createTotal(
    metrics,
    'cloudless_rpc_connections_dropped_total',
    'Connections closed because too many were open.',
  );
  metrics.onExpose(() => {
    const load = getLoad();
    for (const priority of CALL_PRIORITIES) {
      const state = load.priorities[priority];
      running.set(state.running, { lane: priority });
      waiting.set(state.waiting, { lane: priority });
      admitted(state.admitted, { lane: priority });
      for (const [reason, count] of Object.entries(state.shed))
        shed(count, { lane: priority, reason });
    }
    streams.set(load.streams);
    connections.set(load.connections);
    overload.set(load.overload);
    bytes.set(load.waitingRequestBytes, { what: 'requests' });
    bytes.set(load.unreadResponseBytes, { what: 'answers' });
    streamsRefused(load.streamsRefused);
    slowReaders(load.slowReadersAborted);
    dropped(load.connectionsDropped);
  });
}

/**
 * Registers a counter whose total is kept elsewhere.
 * @returns A function that sets the total, which must not decrease, for the given label values.
 */
function createTotal(metrics: Metrics, name: string, help: string, labels: readonly string[] = []) {
  const counter = metrics.counter({ name, help, labels });
  const totals = new Map<string, number>();
  return (count: number, values: Readonly<Record<string, string>> = {}): void => {
    const key = Object.values(values).join(' ');
    counter.add(count - (totals.get(key) ?? 0), values);
    totals.set(key, count);
  };
}
