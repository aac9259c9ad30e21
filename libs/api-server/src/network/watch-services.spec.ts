import { createClient, type Client } from '@connectrpc/connect';
import {
  NetworkService,
  ReplicaStatus_Phase as Phase,
  WatchServicesResponse_Kind as Kind,
  type WatchServicesResponse,
} from '@cloudless/api';
import { ApiTestBed } from '../testing/api-test-bed.js';

const ports = [{ port: 80 }];

let bed: ApiTestBed;
let client: Client<typeof NetworkService>;
let stop: AbortController;

beforeEach(async () => {
  bed = await ApiTestBed.open();
  client = createClient(NetworkService, bed.transport);
  stop = new AbortController();
});
afterEach(async () => {
  stop.abort();
  await bed.stop();
});

/** Collects the items of a watch until the test ends. */
function watch(request: Parameters<typeof client.watchServices>[0]): WatchServicesResponse[] {
  const items: WatchServicesResponse[] = [];
  void (async () => {
    for await (const item of client.watchServices(request, { signal: stop.signal }))
      items.push(item);
  })().catch(() => undefined);
  return items;
}

const toText = ({ kind, service }: WatchServicesResponse): string =>
  `${Kind[kind]} ${service?.name ?? ''}`.trim();

describe('WatchServices', () => {
  it('resumed after a revision sends what changed since then, and what was deleted', async () => {
    for (const name of ['a', 'b', 'c']) await client.createService({ name, spec: { ports } });
    const afterRevision = bed.state.view().revision;
    await client.updateService({ name: 'a', spec: { proxyProtocol: true } });
    await client.deleteService({ name: 'b' });
    const items = watch({ afterRevision });
    await bed.settle();
    expect(items.map(toText)).toEqual(['PUT a', 'DELETED b', 'BOOKMARK']);
    await client.deleteService({ name: 'c' });
    await bed.settle();
    expect(items.map(toText).slice(3)).toEqual(['DELETED c']);
  });

  it('resumed shows that a workload has left a service by a change of its labels', async () => {
    const spec = { command: ['serve'], ports: [{ containerPort: 80 }], labels: { app: 'x' } };
    const { uid } = await bed.client.createWorkload({ name: 'web', spec });
    const endpoints = [{ portName: 'port-80', ip: '10.0.0.1', port: 80 }];
    await bed.putReplica(`${uid}-1`, { phase: Phase.RUNNING, ready: true, endpoints });
    await client.createService({ name: 'front', spec: { ports, selector: { app: 'x' } } });
    expect((await client.getService({ name: 'front' })).status?.readyEndpoints).toBe(1);
    const afterRevision = bed.state.view().revision;
    const labels = { app: 'y' };
    await bed.client.updateWorkload({ name: 'web', spec: { labels } });
    const items = watch({ afterRevision });
    await bed.settle();
    expect(items[0]?.service?.status).toMatchObject({
      readyEndpoints: 0,
      conditions: [{ reason: 'NoWorkloadSelected' }, { reason: 'NoNetworkProxy' }],
    });
  });

  it('sends only services of the filter, and DELETED when a service leaves the filter', async () => {
    const labels = { tier: 'front' };
    await client.createService({ name: 'a', spec: { ports }, labels });
    await client.createService({ name: 'b', spec: { ports } });
    await client.createService({ namespace: 'other', name: 'a', spec: { ports }, labels });
    const items = watch({ namespace: 'default', labelSelector: 'tier=front' });
    await bed.settle();
    await client.updateService({ name: 'a', labels: { tier: '' } });
    await bed.settle();
    expect(items.map(toText)).toEqual(['PUT a', 'SYNCED', 'DELETED a']);
  });
});

describe('reads of services', () => {
  it('wait for min_revision, and refuse min_revision together with linearizable', async () => {
    await client.createService({ name: 'a', spec: { ports } });
    const minRevision = bed.state.view().revision;
    expect(await client.getService({ name: 'a', minRevision })).toMatchObject({ name: 'a' });
    expect((await client.listServices({ linearizable: true })).services).toHaveLength(1);
    await expect(client.listServices({ minRevision, linearizable: true })).rejects.toThrow(
      'min_revision: cannot be combined',
    );
  });
});
