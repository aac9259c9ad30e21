import { create } from '@bufbuild/protobuf';
import { createClient, type Client } from '@connectrpc/connect';
import {
  EndpointHealth_Status as Health,
  NetworkService,
  ReplicaStatus_Phase as Phase,
  ServiceCondition_Type as ConditionType,
  ServiceSpec_Type as Type,
  WatchServiceEndpointsResponse_Kind as EndpointKind,
  WatchServicesResponse_Kind as WatchKind,
  type WatchServiceEndpointsResponse,
  type WatchServicesResponse,
} from '@cloudless/api';
import { VersionRecordSchema } from '@cloudless/api/store';
import { toVersionKeyId } from '@cloudless/cluster-state';
import { ApiTestBed } from '../testing/api-test-bed.js';

let bed: ApiTestBed;
let client: Client<typeof NetworkService>;

beforeEach(async () => {
  bed = await ApiTestBed.open();
  client = createClient(NetworkService, bed.transport);
});
afterEach(() => bed.stop());

const declared = [{ name: 'http', containerPort: 8080 }];

/** Creates the workload `web` and a service of the name that selects the workload by a label. */
async function createWeb(ports = declared): Promise<string> {
  const spec = { command: ['serve'], labels: { app: 'web' }, ports };
  const { uid } = await bed.client.createWorkload({ name: 'web', spec });
  await client.createService({
    name: 'web',
    spec: { selector: { app: 'web' }, ports: [{ name: 'http', port: 80 }] },
  });
  return uid;
}

async function putReplica(uid: string, number: number, fields = {}): Promise<void> {
  await bed.putReplica(`${uid}-${number}`, {
    ...{ phase: Phase.RUNNING, ready: true, nodeId: `node-${number}` },
    endpoints: [{ portName: 'http', ip: '10.1.0.1', port: 20_000 + number }],
    ...fields,
  });
}

const conditionOf = async (type: ConditionType, name = 'web') =>
  (await client.getService({ name })).status?.conditions.find((found) => found.type === type);

describe('status of a service', () => {
  it('says that no workload is selected', async () => {
    const spec = { selector: { app: 'none' }, ports: [{ port: 80 }] };
    await client.createService({ name: 'web', spec });
    expect(await conditionOf(ConditionType.HAS_ENDPOINTS)).toMatchObject({
      ...{ holds: false, reason: 'NoWorkloadSelected' },
      message: 'no workload of namespace default has the labels app=none',
    });
  });

  it('counts ready and other replicas, and names the workload without ready ones', async () => {
    const uid = await createWeb();
    expect(await conditionOf(ConditionType.HAS_ENDPOINTS)).toMatchObject({ reason: 'NoReplicas' });
    await putReplica(uid, 1, { ready: false });
    expect(await conditionOf(ConditionType.HAS_ENDPOINTS)).toMatchObject({
      ...{ holds: false, reason: 'NoReadyReplicas' },
      message: 'none of the 1 replicas of web is ready; see cloudlessctl explain web',
    });
    await putReplica(uid, 2);
    await putReplica(uid, 3, { desiredRunning: false });
    expect((await client.getService({ name: 'web' })).status).toMatchObject({
      ...{ readyEndpoints: 1, totalEndpoints: 3 },
      conditions: [
        { type: ConditionType.HAS_ENDPOINTS, holds: true, reason: '' },
        { type: ConditionType.PORTS_MATCH, holds: true, reason: '' },
        { type: ConditionType.NETWORK_PROXY_PRESENT, holds: false, reason: 'NoNetworkProxy' },
      ],
    });
  });

  it('says in the answer of CreateService that there is no such workload and no network proxy', async () => {
    const spec = { workload: 'nope', ports: [{ port: 80 }] };
    const { status } = await client.createService({ name: 'web', spec });
    expect(status?.conditions.map(({ message }) => message)).toEqual([
      'namespace default has no workload nope',
      'no node has a network proxy, so the name and the address of the service work nowhere; start agents with --network on or auto',
    ]);
  });

  it('says nothing about network proxies once a node has a network proxy', async () => {
    await createWeb();
    const { NETWORK_PROXY_PRESENT } = ConditionType;
    await bed.putNode('n0', { hello: {} });
    expect(await conditionOf(NETWORK_PROXY_PRESENT)).toMatchObject({
      ...{ holds: false, reason: 'NoNetworkProxy' },
    });
    await bed.putNode('n1', { hello: { network: {} } });
    expect(await conditionOf(NETWORK_PROXY_PRESENT)).toBeUndefined();
  });

  it('names the ports that the workload does not declare', async () => {
    await createWeb([
      { name: 'a', containerPort: 1 },
      { name: 'b', containerPort: 2 },
    ]);
    expect(await conditionOf(ConditionType.PORTS_MATCH)).toMatchObject({
      ...{ holds: false, reason: 'PortsDoNotMatch' },
      message: 'workload web declares no port for http; it declares a (1 TCP), b (2 TCP)',
    });
  });

  it('counts no ready replica as an endpoint that has no address for a port of the service', async () => {
    const uid = await createWeb([
      { name: 'a', containerPort: 1 },
      { name: 'b', containerPort: 2 },
    ]);
    await putReplica(uid, 1, { endpoints: [{ portName: 'a', ip: '10.1.0.1', port: 1 }] });
    expect((await client.getService({ name: 'web' })).status).toMatchObject({
      ...{ readyEndpoints: 0, totalEndpoints: 0 },
      conditions: [
        {
          ...{ holds: false, reason: 'PortsDoNotMatch' },
          message:
            '1 ready replica of web has no address for a port of the service; see the condition PORTS_MATCH',
        },
        { holds: false, reason: 'PortsDoNotMatch' },
        { holds: false, reason: 'NoNetworkProxy' },
      ],
    });
  });

  it('says why external addresses are not served, and nothing once nodes may serve them', async () => {
    const spec = { type: Type.LOAD_BALANCER, ports: [{ port: 80 }] };
    await client.createService({ name: 'web', spec });
    const reasonOf = async () => (await conditionOf(ConditionType.EXTERNAL_IPS_SERVED))?.reason;
    expect(await reasonOf()).toBe('NoExternalAddress');
    await client.updateService({ name: 'web', spec: { externalIps: ['203.0.114.7'] } });
    expect(await reasonOf()).toBe('NoNetworkProxy');
    await bed.putNode('n1', { hello: { network: {} } });
    expect(await reasonOf()).toBeUndefined();
  });

  it('names the external addresses that no interface of a node has', async () => {
    const externalIps = ['203.0.114.7', '203.0.114.8'];
    const withAddresses = (...addresses: string[]) => ({
      hello: { network: { machineAddresses: { addresses } } },
    });
    await bed.putNode('n1', withAddresses('10.0.0.1', '203.0.114.7'));
    await bed.putNode('n2', withAddresses('10.0.0.2'));
    await bed.putNode('gone', { ...withAddresses('203.0.114.8'), lost: true });
    const spec = { type: Type.LOAD_BALANCER, ports: [{ port: 80 }], externalIps };
    await client.createService({ name: 'web', spec });
    expect(await conditionOf(ConditionType.EXTERNAL_IPS_SERVED)).toMatchObject({
      ...{ holds: false, reason: 'NoNodeHasAddress' },
      message: expect.stringContaining(
        'no interface of a node has the external address 203.0.114.8;',
      ),
    });
    await bed.putNode('n3', withAddresses('203.0.114.8'));
    expect(await conditionOf(ConditionType.EXTERNAL_IPS_SERVED)).toBeUndefined();
  });

  it('reports no missing external address while a node has not reported its addresses', async () => {
    await bed.putNode('n1', { hello: { network: { machineAddresses: {} } } });
    await bed.putNode('n2', { hello: { network: {} } });
    const spec = { type: Type.LOAD_BALANCER, ports: [{ port: 80 }], externalIps: ['203.0.114.7'] };
    await client.createService({ name: 'web', spec });
    expect(await conditionOf(ConditionType.EXTERNAL_IPS_SERVED)).toBeUndefined();
  });
});

describe('endpoints of a service', () => {
  it('are the addresses of replicas with health, place and version', async () => {
    const uid = await createWeb();
    await bed.putNode('node-1', { zone: 'z1' });
    await bed.putNode('node-2', { zone: 'z2' });
    await putReplica(uid, 1);
    await putReplica(uid, 2, { desiredRunning: false });
    const { endpoints } = await client.listEndpoints({ service: 'web' });
    expect(endpoints).toMatchObject([
      {
        ...{ id: `${uid}-1/http`, portName: 'http', address: '10.1.0.1', port: 20_001 },
        ...{ nodeId: 'node-1', zone: 'z1', workload: 'web', weight: 100 },
        health: { status: Health.HEALTHY },
      },
      { id: `${uid}-2/http`, zone: 'z2', health: { status: Health.DRAINING } },
    ]);
    const inZone = await client.listEndpoints({ service: 'web', zone: 'z2' });
    expect(inZone.endpoints).toHaveLength(1);
    const healthStatus = Health.HEALTHY;
    expect((await client.listEndpoints({ service: 'web', healthStatus })).endpoints).toHaveLength(
      1,
    );
  });

  it('have the weights with which proxies choose the version of each replica', async () => {
    const uid = await createWeb();
    const template = { command: ['serve', 'new'], ports: declared };
    const version = create(VersionRecordSchema, { version: 2, template });
    await bed.state.commit(bed.state.transaction().put('version', toVersionKeyId(uid, 2), version));
    await putReplica(uid, 1, { version: 1 });
    await putReplica(uid, 2, { version: 2 });
    const { endpoints } = await client.listEndpoints({ service: 'web' });
    expect(endpoints.map(({ version, weight }) => [version, weight])).toEqual([
      [1, 100],
      [2, 900],
    ]);
  });

  it('are resolved with those in the zone of the caller first', async () => {
    const uid = await createWeb();
    for (const [number, zone] of [
      [1, 'a'],
      [2, 'b'],
      [3, 'a'],
    ] as const) {
      await bed.putNode(`node-${number}`, { zone });
      await putReplica(uid, number);
    }
    const resolved = await client.resolveService({ serviceName: 'web', callerZone: 'b' });
    expect(resolved.endpoints.map(({ zone }) => zone)).toEqual(['b', 'a', 'a']);
    expect(resolved.virtualIp).toMatch(/^10\.96\./);
    expect(resolved.dnsName).toBe('web.default.svc.cloudless.internal');
  });

  it('follow the declared ports of the version of each replica', async () => {
    const uid = await createWeb();
    const template = { command: ['serve'], ports: [{ name: 'other', containerPort: 1 }] };
    const version = create(VersionRecordSchema, { version: 2, template });
    await bed.state.commit(bed.state.transaction().put('version', toVersionKeyId(uid, 2), version));
    await putReplica(uid, 1, { version: 2 });
    expect((await client.listEndpoints({ service: 'web' })).endpoints).toEqual([]);
  });
});

/** Collects the items of a stream until the test ends. */
function collect<Item>(open: (signal: AbortSignal) => AsyncIterable<Item>): Item[] {
  const items: Item[] = [];
  const stop = new AbortController();
  void (async () => {
    for await (const item of open(stop.signal)) items.push(item);
  })().catch(() => undefined);
  return items;
}

describe('WatchServices and WatchServiceEndpoints', () => {
  it('send a service again when a replica becomes ready, and its deletion', async () => {
    const uid = await createWeb();
    const items: WatchServicesResponse[] = collect((signal) =>
      client.watchServices({}, { signal }),
    );
    await bed.settle();
    await putReplica(uid, 1);
    await bed.settle();
    await client.deleteService({ name: 'web' });
    await bed.settle();
    expect(items.map(({ kind }) => WatchKind[kind])).toEqual(['PUT', 'SYNCED', 'PUT', 'DELETED']);
    expect(items[2]?.service?.status?.readyEndpoints).toBe(1);
  });

  it('send each change of an endpoint, and end with the service', async () => {
    const uid = await createWeb();
    await putReplica(uid, 1);
    const items: WatchServiceEndpointsResponse[] = collect((signal) =>
      client.watchServiceEndpoints({ service: 'web' }, { signal }),
    );
    await bed.settle();
    await putReplica(uid, 2);
    await bed.settle();
    await bed.updateReplica(`${uid}-1`, { ready: false });
    await bed.settle();
    await client.deleteService({ name: 'web' });
    await bed.settle();
    expect(
      items.map(({ kind, endpoint }) => `${EndpointKind[kind]} ${endpoint?.id ?? ''}`),
    ).toEqual([
      `ADDED ${uid}-1/http`,
      'SYNCED ',
      `ADDED ${uid}-2/http`,
      `MODIFIED ${uid}-1/http`,
      `DELETED ${uid}-1/http`,
      `DELETED ${uid}-2/http`,
    ]);
  });
});
