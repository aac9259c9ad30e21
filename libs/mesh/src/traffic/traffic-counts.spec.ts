import { create } from '@bufbuild/protobuf';
import { NetworkEndpointEntrySchema, type NetworkEndpointEntry } from '@cloudless/api';
import { createSeededRandom } from '@cloudless/base';
import type { EndpointCounts, ServicePort } from '../service/service-port.js';
import { MAX_REPORTED, TrafficCounts } from './traffic-counts.js';

function setUp(...replicaIds: readonly string[]) {
  const endpoints = new Map<string, NetworkEndpointEntry>();
  const counts = new Map<string, EndpointCounts>();
  for (const replicaId of replicaIds)
    endpoints.set(`e-${replicaId}`, create(NetworkEndpointEntrySchema, { replicaId }));
  const ports = () => [{ counts }] as unknown as ServicePort[];
  const traffic = new TrafficCounts(createSeededRandom(1), { endpoints }, ports);
  const connect = (replicaId: string, connections: number, failures = 0): void => {
    const noBytes = { sentBytes: 0, receivedBytes: 0 };
    counts.set(`e-${replicaId}`, { connections, failures, ...noBytes });
  };
  const respond = (replicaId: string, status: number, durationMs: number): void =>
    traffic.addResponse({ endpoint: `e-${replicaId}`, status, durationMs });
  return { traffic, endpoints, counts, connect, respond };
}

it('reports the replicas whose counts have changed, with all of their counts', () => {
  const { traffic, connect, respond } = setUp('a', 'b');
  const next = traffic.open();
  expect(next()).toEqual({ processId: expect.stringMatching(/^[0-9a-f]{16}$/), endpoints: [] });
  connect('a', 2, 1);
  respond('b', 200, 1.5);
  respond('b', 503, 0.5);
  expect(next().endpoints).toEqual([
    {
      replicaId: 'b',
      ...{ connections: 0n, connectFailures: 0n, requests: 2n, errors: 1n },
      durations: [1n, 0n, 0n, 1n],
    },
    {
      replicaId: 'a',
      ...{ connections: 2n, connectFailures: 1n, requests: 0n, errors: 0n, durations: [] },
    },
  ]);
  expect(next().endpoints).toEqual([]);
  respond('b', 499, 1);
  expect(next().endpoints).toMatchObject([{ replicaId: 'b', requests: 3n, errors: 1n }]);
  expect(traffic.open()().endpoints).toHaveLength(2);
});

it('adds what a port counts anew for an endpoint that returned', () => {
  const { traffic, connect } = setUp('a');
  const next = traffic.open();
  connect('a', 5);
  next();
  connect('a', 2);
  expect(next().endpoints).toMatchObject([{ connections: 7n }]);
});

it('forgets replicas that are gone, and addresses outside the cluster', () => {
  const { traffic, endpoints, connect, respond } = setUp('a', '');
  connect('', 1);
  respond('', 200, 1);
  respond('a', 200, 1);
  traffic.addResponse({ endpoint: 'unknown', status: 200, durationMs: 1 });
  const next = traffic.open();
  expect(next().endpoints).toMatchObject([{ replicaId: 'a' }]);
  endpoints.delete('e-a');
  next();
  endpoints.set('e-a', create(NetworkEndpointEntrySchema, { replicaId: 'a' }));
  respond('a', 200, 1);
  expect(next().endpoints).toMatchObject([{ replicaId: 'a', requests: 1n }]);
});

it('reports more replicas than one report holds in the next', () => {
  const ids = Array.from({ length: MAX_REPORTED + 1 }, (_, index) => `r${index}`);
  const { traffic, respond } = setUp(...ids);
  for (const id of ids) respond(id, 200, 1);
  const next = traffic.open();
  expect([next().endpoints?.length, next().endpoints?.length]).toEqual([MAX_REPORTED, 1]);
});
