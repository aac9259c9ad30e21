import { create } from '@bufbuild/protobuf';
import { createClient, type Client } from '@connectrpc/connect';
import { NetworkService, ServiceSpec_Type as Type } from '@cloudless/api';
import { CoordinatorRecordSchema } from '@cloudless/api/store';
import { ManualClock } from '@cloudless/base/testing';
import type { Grant } from '@cloudless/identity';
import { ApiTestBed } from '../testing/api-test-bed.js';
import { TestIdentity, createTokenClient } from '../testing/test-identity.js';

const ADDRESS = '203.0.114.9';
const balanced = (externalIps: readonly string[], port = 443) => ({
  ...{ type: Type.LOAD_BALANCER, ports: [{ port }], externalIps: [...externalIps] },
});

let bed: ApiTestBed;
let client: Client<typeof NetworkService>;

async function open(identity?: TestIdentity): Promise<void> {
  bed = await ApiTestBed.open(identity === undefined ? {} : { identity });
  client = createClient(NetworkService, bed.transport);
}
afterEach(() => bed.stop());

/** Stores two nodes and a coordinator with addresses of their machines. */
async function putMachines(): Promise<void> {
  await bed.putNode('n1', {
    hello: { agentAddress: 'https://10.0.0.5:7443', network: { address: '10.0.1.5:9443' } },
  });
  await bed.putNode('n2', { hello: { network: { address: '[fd12::5]:9443' } } });
  const coordinator = create(CoordinatorRecordSchema, {
    ...{ id: 'c1', address: 'https://10.0.0.9:6443' },
  });
  await bed.state.commit(bed.state.transaction().put('coordinator', 'c1', coordinator));
}

const MACHINES = [
  ['10.0.0.5', 'is an address of the node "n1"'],
  ['10.0.1.5', 'is an address of the node "n1"'],
  ['fd12::5', 'is an address of the node "n2"'],
  ['10.0.0.9', 'is the address of the coordinator "c1"'],
] as const;

describe('external addresses of services', () => {
  beforeEach(() => open());

  const recordIds = () => [...bed.state.view().nodePorts()].map(([id]) => id);
  const externalIds = () => recordIds().filter((id) => id.includes(ADDRESS));

  it('belong to one service for each protocol and port', async () => {
    await client.createService({ name: 'a', spec: balanced([ADDRESS]) });
    await expect(
      client.createService({ namespace: 'other', name: 'b', spec: balanced([ADDRESS]) }),
    ).rejects.toThrow(
      `[failed_precondition] spec.external_ips[0]: ${ADDRESS} port 443 TCP belongs to another service`,
    );
    await client.createService({ name: 'c', spec: balanced([ADDRESS], 80) });
    expect(externalIds()).toEqual([`tcp/${ADDRESS}/443`, `tcp/${ADDRESS}/80`]);
  });

  it('belong to one of two services that are created at the same time', async () => {
    const results = await Promise.allSettled(
      ['a', 'b', 'c'].map((name) => client.createService({ name, spec: balanced([ADDRESS]) })),
    );
    expect(results.map(({ status }) => status).sort()).toEqual([
      ...['fulfilled', 'rejected', 'rejected'],
    ]);
  });

  it('are free again after an update without them, and after the deletion', async () => {
    await client.createService({ name: 'a', spec: balanced([ADDRESS, '203.0.114.10']) });
    await client.updateService({ name: 'a', spec: { externalIps: ['203.0.114.10'] } });
    await client.createService({ name: 'b', spec: balanced([ADDRESS]) });
    await client.updateService({ name: 'b', spec: { ports: [{ port: 8443 }] } });
    expect(externalIds()).toEqual([`tcp/${ADDRESS}/8443`]);
    await client.deleteService({ name: 'a' });
    await client.deleteService({ name: 'b' });
    expect(recordIds()).toEqual([]);
  });

  it.each(MACHINES)('are not those of machines of the cluster: %s %s', async (address, reason) => {
    await putMachines();
    const call = client.createService({ name: 'a', spec: balanced([address]) });
    await expect(call).rejects.toThrow(`spec.external_ips[0]: ${address} ${reason}`);
  });

  it.each([
    ['a port of nodes', balanced([ADDRESS], 30_080), 'spec.ports[0].port: 30080 is in 30000 to'],
    ['another form of an address', balanced(['2001:4860::0:1']), 'write 2001:4860::1'],
    [
      'more addresses and ports than fit into one transaction',
      balanced(Array.from({ length: 16 }, (_, index) => `203.0.114.${index}`)),
      '',
    ],
  ])('are checked: %s', async (_, spec, message) => {
    const extra = Array.from({ length: 2 }, (__, index) => ({ port: 1_000 + index }));
    const ports = message === '' ? [...spec.ports, ...extra] : spec.ports;
    const call = client.createService({ name: 'a', spec: { ...spec, ports } });
    await expect(call).rejects.toThrow(message === '' ? 'use at most 32 pairs' : message);
  });
});

describe('endpoints outside the cluster', () => {
  beforeEach(() => open());

  it.each([...MACHINES, [ADDRESS, 'is an external address of a service'] as const])(
    'are not machines of the cluster or services: %s %s',
    async (address, reason) => {
      await putMachines();
      await client.createService({ name: 'lb', spec: balanced([ADDRESS]) });
      await client.createService({ name: 'db', spec: { ports: [{ port: 5432 }] } });
      const register = (to: string) =>
        client.registerEndpoint({ service: 'db', address: to, port: 2379 });
      await expect(register(address)).rejects.toThrow(`address: ${address} ${reason}`);
      await register('10.0.0.6');
    },
  );
});

describe('the role for external addresses', () => {
  let identity: TestIdentity;
  beforeAll(async () => {
    identity = await TestIdentity.create(new ManualClock().wallTime());
  });
  beforeEach(async () => {
    await open(identity);
    await identity.putAuthority(bed);
  });

  const as = async (name: string, grant: Grant) =>
    createTokenClient(bed, NetworkService, await identity.putUser(bed, name, [grant]));

  it('is operator in the whole cluster, also for further ports at the same addresses', async () => {
    const tenant = await as('ann', { role: 'admin', namespace: 'shop' });
    const operator = await as('bob', { role: 'operator', namespace: '' });
    const named = { namespace: 'shop', name: 'web' };
    const denied =
      'needs the role operator in the whole cluster, because external addresses belong to no namespace';
    const spec = balanced([ADDRESS]);
    await expect(tenant.createService({ ...named, spec })).rejects.toThrow(denied);
    await operator.createService({ ...named, spec });
    const widened = tenant.updateService({
      ...named,
      spec: { ports: [{ port: 443 }, { name: 'ssh', port: 22 }] },
    });
    await expect(widened).rejects.toThrow(denied);
    await tenant.updateService({ ...named, spec: { proxyProtocol: true } });
    const type = { type: Type.NODE_PORT, ports: [{ port: 443 }] };
    const updateMask = { paths: ['type', 'external_ips', 'ports'] };
    await tenant.updateService({ ...named, spec: type, updateMask });
    await tenant.createService({ namespace: 'shop', name: 'np', spec: type });
  });
});
