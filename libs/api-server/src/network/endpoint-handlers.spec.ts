import { create } from '@bufbuild/protobuf';
import { createClient, type Client } from '@connectrpc/connect';
import { EndpointHealth_Status as Health, NetworkService } from '@cloudless/api';
import { NodeBanRecordSchema } from '@cloudless/api/store';
import { findChecker } from '@cloudless/cluster-state';
import { ApiTestBed } from '../testing/api-test-bed.js';

let bed: ApiTestBed;
let client: Client<typeof NetworkService>;

const target = { service: 'db', address: '10.0.0.5', port: 5432 };
const ID = 'sql-10.0.0.5-5432';

beforeEach(async () => {
  bed = await ApiTestBed.open();
  client = createClient(NetworkService, bed.transport);
  await bed.putNode('n0', { hello: { network: {} } });
  await client.createService({ name: 'db', spec: { ports: [{ name: 'sql', port: 5432 }] } });
});
afterEach(() => bed.stop());

const listIds = async (): Promise<readonly string[]> =>
  (await client.listEndpoints({ service: 'db' })).endpoints.map(({ id }) => id);
const statusOf = async () => (await client.getService({ name: 'db' })).status;

describe('RegisterEndpoint', () => {
  it('adds an address once, with its weight and place, and counts it as ready without a check', async () => {
    const endpoint = await client.registerEndpoint({ ...target, zone: 'z1' });
    expect(endpoint).toMatchObject({ id: ID, portName: 'sql', weight: 100, zone: 'z1' });
    await client.registerEndpoint({ ...target, weight: 5 });
    expect((await client.listEndpoints({ service: 'db' })).endpoints).toMatchObject([
      { id: ID, weight: 5, zone: 'z1', registeredAt: endpoint.registeredAt },
    ]);
    expect(await statusOf()).toMatchObject({ readyEndpoints: 1, totalEndpoints: 1 });
    expect((await client.resolveService({ serviceName: 'db' })).endpoints).toHaveLength(1);
  });

  it('writes equal IPv6 addresses alike', async () => {
    await client.registerEndpoint({ ...target, address: '2001:0DB8:85a3::0001' }).catch(() => 0);
    await client.registerEndpoint({ ...target, address: 'FD12:0:0::1' });
    await client.registerEndpoint({ ...target, address: 'fd12::1' });
    expect(await listIds()).toEqual(['sql-fd12::1-5432']);
  });

  it.each([
    ['127.0.0.1', 'loopback'],
    ['169.254.169.254', 'link-local'],
    ['::ffff:127.0.0.1', 'IPv4 address in IPv6 form'],
    ['10.96.0.40', 'the range of virtual addresses'],
    ['0177.0.0.1', 'is not an IP address'],
    ['metadata.internal', 'is not an IP address'],
  ])('refuses %s: %s', async (address, reason) => {
    await expect(client.registerEndpoint({ ...target, address })).rejects.toThrow(reason);
    expect(await listIds()).toEqual([]);
  });

  it('refuses services that lead to replicas or names, and unknown ports', async () => {
    await client.createService({ name: 'web', spec: { workload: 'web', ports: [{ port: 80 }] } });
    await client.createService({ name: 'ext', spec: { externalName: 'db.example.com' } });
    const register = (fields: object) => client.registerEndpoint({ ...target, ...fields });
    await expect(register({ service: 'web' })).rejects.toThrow('leads to replicas');
    await expect(register({ service: 'ext' })).rejects.toThrow('stands for the name');
    await expect(register({ portName: 'x' })).rejects.toThrow('no port "x"; set one of sql');
    await expect(register({ service: 'none' })).rejects.toThrow('not_found');
  });
});

describe('DeregisterEndpoint', () => {
  it('removes an endpoint, and a repeated call changes nothing', async () => {
    await client.registerEndpoint(target);
    await client.deregisterEndpoint({ service: 'db', endpointId: ID });
    await client.deregisterEndpoint({ service: 'db', endpointId: ID });
    expect(await listIds()).toEqual([]);
    expect(bed.auditRecords.slice(-2)).toEqual([
      'DeregisterEndpoint ok',
      'DeregisterEndpoint unchanged',
    ]);
  });

  it('leaves no endpoint of a deleted service to a new service of the same name', async () => {
    await client.registerEndpoint(target);
    await client.deleteService({ name: 'db' });
    await client.createService({ name: 'db', spec: { ports: [{ name: 'sql', port: 5432 }] } });
    expect(await listIds()).toEqual([]);
    await client.registerEndpoint(target);
    expect(await listIds()).toEqual([ID]);
  });
});

describe('UpdateEndpointHealth', () => {
  const change = (status: Health, nodeId = '', reason = '') =>
    client.updateEndpointHealth({
      ...{ service: 'db', endpointId: ID, nodeId },
      health: { status, reason },
    });
  const putHealthCheck = () =>
    client.updateLoadBalancerConfig({ service: 'db', config: { healthCheck: { type: 0 } } });

  it('by a user takes an endpoint of a service without health check out, and in again', async () => {
    await client.registerEndpoint(target);
    await change(Health.UNHEALTHY, '', 'maintenance');
    expect(await statusOf()).toMatchObject({
      readyEndpoints: 0,
      conditions: [{ holds: false, reason: 'NoHealthyEndpoints' }],
    });
    await change(Health.HEALTHY);
    expect(await statusOf()).toMatchObject({ readyEndpoints: 1 });
    await expect(change(Health.DRAINING)).rejects.toThrow('must be HEALTHY or UNHEALTHY');
    await putHealthCheck();
    await expect(change(Health.UNHEALTHY)).rejects.toThrow('nodes check the endpoints');
  });

  it('is accepted only from the node that checks the endpoint, and writes only news', async () => {
    await client.registerEndpoint(target);
    await putHealthCheck();
    for (const id of ['n1', 'n2', 'n3']) await bed.putNode(id, { hello: { network: {} } });
    await bed.putNode('plain');
    const checker = findChecker(bed.state.view(), `default/db/${ID}`) ?? '';
    const others = ['n1', 'n2', 'n3', 'plain'].filter((id) => id !== checker);
    for (const id of others)
      await expect(change(Health.UNHEALTHY, id)).rejects.toThrow(`node "${id}" does not check`);
    expect(await statusOf()).toMatchObject({ readyEndpoints: 0 });
    await change(Health.HEALTHY, checker);
    expect(await statusOf()).toMatchObject({ readyEndpoints: 1 });
    const { revision } = bed.state.view();
    await change(Health.HEALTHY, checker);
    expect(bed.state.view().revision).toBe(revision);
    const ban = create(NodeBanRecordSchema, {});
    await bed.state.commit(bed.state.transaction().put('ban', checker, ban));
    await expect(change(Health.UNHEALTHY, checker)).rejects.toThrow('does not check');
  });
});
