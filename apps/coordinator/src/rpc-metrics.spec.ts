import { createMetrics } from '@cloudless/observability';
import type { PriorityLoad, RpcLoad } from '@cloudless/rpc-node/server';
import { registerRpcMetrics } from './rpc-metrics.js';

const aPriorityLoad = (value: Partial<PriorityLoad> = {}): PriorityLoad => ({
  running: 0,
  waiting: 0,
  admitted: 0,
  shed: { overload: 0, full: 0, waited: 0 },
  ...value,
});

function aLoad(value: Partial<RpcLoad> = {}): RpcLoad {
  return {
    overload: 0,
    priorities: {
      control: aPriorityLoad(),
      stop: aPriorityLoad(),
      write: aPriorityLoad(),
      read: aPriorityLoad(),
    },
    connections: 0,
    connectionsDropped: 0,
    streams: 0,
    streamsRefused: 0,
    waitingRequestBytes: 0,
    unreadResponseBytes: 0,
    slowReadersAborted: 0,
    ...value,
  };
}

it('registerRpcMetrics exposes the load of the server, and counts each refusal once over several scrapes', async () => {
  const metrics = createMetrics();
  const busy = aPriorityLoad({
    running: 3,
    waiting: 4,
    admitted: 50,
    shed: { overload: 7, full: 0, waited: 1 },
  });
  let load = aLoad();
  registerRpcMetrics(metrics, () => load);
  await metrics.expose();
  load = aLoad({
    overload: 2,
    priorities: { ...load.priorities, read: busy },
    connections: 9,
    connectionsDropped: 8,
    streams: 6,
    streamsRefused: 5,
    waitingRequestBytes: 11,
    unreadResponseBytes: 12,
    slowReadersAborted: 13,
  });
  await metrics.expose();
  const text = await metrics.expose();
  for (const line of [
    'cloudless_rpc_running{lane="read"} 3',
    'cloudless_rpc_waiting{lane="read"} 4',
    'cloudless_rpc_admitted_total{lane="read"} 50',
    'cloudless_rpc_admitted_total{lane="control"} 0',
    'cloudless_rpc_shed_total{lane="read",reason="overload"} 7',
    'cloudless_rpc_shed_total{lane="read",reason="waited"} 1',
    'cloudless_rpc_overload_level 2',
    'cloudless_rpc_connections 9',
    'cloudless_rpc_connections_dropped_total 8',
    'cloudless_rpc_streams 6',
    'cloudless_rpc_streams_refused_total 5',
    'cloudless_rpc_waiting_bytes{what="requests"} 11',
    'cloudless_rpc_waiting_bytes{what="answers"} 12',
    'cloudless_rpc_readers_cut_total 13',
  ])
    expect(text.split('\n')).toContain(line);
});
