import { create } from '@bufbuild/protobuf';
import { createClient, type Client } from '@connectrpc/connect';
import fc from 'fast-check';
import {
  NetworkService,
  Port_Protocol as Protocol,
  ServiceSpec_SessionAffinity as Affinity,
  ServiceSpec_Type as Type,
} from '@cloudless/api';
import { NetworkSettingsRecordSchema } from '@cloudless/api/store';
import { ApiTestBed } from '../testing/api-test-bed.js';

const HOUR_MS = 3_600_000;
const ports = [{ port: 80 }];

let bed: ApiTestBed;
let client: Client<typeof NetworkService>;

beforeEach(async () => {
  bed = await ApiTestBed.open();
  client = createClient(NetworkService, bed.transport);
});
afterEach(() => bed.stop());

/** Stores the range of virtual addresses. /26: 47 addresses that services can have. */
async function putRange(serviceCidr: string): Promise<void> {
  const record = create(NetworkSettingsRecordSchema, { serviceCidr, clusterDomain: 'lab.test' });
  await bed.state.commit(bed.state.transaction().put('network', 'settings', record));
}

const addressOf = async (name: string): Promise<string> =>
  (await client.createService({ name, spec: { ports } })).status?.clusterIp ?? '';

describe('CreateService', () => {
  it('fills in defaults, assigns a virtual address and a DNS name, and writes one audit record', async () => {
    const service = await client.createService({
      name: 'web',
      spec: { ports, workload: 'web', sessionAffinity: Affinity.CLIENT_IP },
      labels: { tier: 'front' },
    });
    expect(service).toMatchObject({
      ...{ namespace: 'default', name: 'web', generation: 1n, labels: { tier: 'front' } },
      spec: {
        ports: [{ name: 'port-80', port: 80 }],
        sessionAffinityTimeout: { seconds: 10_800n },
      },
      status: { dnsName: 'web.default.svc.cloudless.internal' },
      loadBalancer: { localityAware: true, connectTimeout: { seconds: 2n } },
    });
    expect(service.status?.clusterIp).toMatch(/^10\.96\.\d+\.\d+$/);
    expect(await client.getService({ name: 'web' })).toEqual(service);
    expect(bed.auditRecords).toEqual(['CreateService ok']);
    expect(bed.events('ServiceCreated')[0]?.message).toBe(
      `service default/web was created with the virtual address ${service.status?.clusterIp}`,
    );
  });

  it('returns the stored response for a repeated request id, and refuses another body', async () => {
    const request = { name: 'web', spec: { ports }, requestId: 'r1' };
    const first = await client.createService(request);
    expect(await client.createService(request)).toEqual(first);
    await expect(client.createService({ ...request, name: 'api' })).rejects.toThrow('request_id');
    expect(bed.events('ServiceCreated')).toHaveLength(1);
  });

  it('refuses a second service of the same name', async () => {
    await addressOf('web');
    await expect(addressOf('web')).rejects.toThrow(
      '[already_exists] service "default/web" already exists; update it, or choose another name',
    );
  });

  it('gives headless services and external names no virtual address', async () => {
    const headless = await client.createService({ name: 'a', spec: { ports, headless: true } });
    const external = await client.createService({
      name: 'b',
      spec: { externalName: 'db.example.com' },
    });
    expect([headless, external].map(({ status }) => status?.clusterIp)).toEqual(['', '']);
  });

  it.each([
    ['a service without ports', { ports: [] }, 'spec.ports: at least one port is required'],
    [
      'two ports with one number',
      { ports: [{ port: 80 }, { name: 'b', port: 80 }] },
      '80 TCP is used twice',
    ],
    [
      'a target port that is 0',
      { ports: [{ port: 80, targetPort: '0' }] },
      'neither a port number',
    ],
    [
      'a workload together with a selector',
      { ports, workload: 'a', selector: { a: 'b' } },
      'set one of them',
    ],
    [
      'a port of nodes for type CLUSTER_IP',
      { ports: [{ port: 80, nodePort: 30_080 }] },
      'type NODE_PORT',
    ],
    [
      'a port of nodes below 30000',
      { type: Type.NODE_PORT, ports: [{ port: 8, nodePort: 80 }] },
      '30000',
    ],
    ['an IP address as external name', { externalName: '10.0.0.1' }, 'is not a DNS name'],
    [
      'a name of the cluster as external name',
      { externalName: 'a.b.svc.cloudless.internal' },
      'of this cluster',
    ],
    [
      'an external name with ports',
      { externalName: 'db.example.com', ports },
      'spec.ports: has no effect',
    ],
    [
      'a loopback address as external address',
      { type: Type.LOAD_BALANCER, ports, externalIps: ['127.0.0.1'] },
      'loop',
    ],
    [
      'external addresses for type CLUSTER_IP',
      { ports, externalIps: ['10.0.0.1'] },
      'only services of type',
    ],
    [
      'session affinity of a headless service',
      { ports, headless: true, sessionAffinity: 1 },
      'not balanced',
    ],
  ])('refuses %s', async (_, spec, message) => {
    await expect(client.createService({ name: 'web', spec })).rejects.toThrow(message);
  });

  it('answers RESOURCE_EXHAUSTED, naming the range, when no virtual address is free', async () => {
    await putRange('10.9.0.0/26');
    for (let count = 0; count < 47; count += 1) await addressOf(`s${count}`);
    await expect(addressOf('last')).rejects.toThrow(
      /^\[resource_exhausted\] all 47 virtual addresses of 10\.9\.0\.0\/26 are taken/,
    );
  });

  it('keeps the address of a deleted service for an hour, and assigns the address again later', async () => {
    await putRange('10.9.0.0/26');
    for (let count = 0; count < 46; count += 1) await addressOf(`s${count}`);
    const last = await addressOf('last');
    await client.deleteService({ name: 'last' });
    await bed.clock.advance(HOUR_MS - 1);
    await expect(addressOf('next')).rejects.toThrow('resource_exhausted');
    await bed.clock.advance(1);
    expect(await addressOf('next')).toBe(last);
  });

  it('never assigns an address or port to two services, whatever calls run at once', async () => {
    await putRange('10.9.0.0/26');
    const call = fc.record({
      name: fc.integer({ min: 0, max: 20 }).map((number) => `s${number}`),
      isDeletion: fc.boolean(),
      nodePort: fc.constantFrom(0, 30_001, 30_002),
    });
    await fc.assert(
      fc.asyncProperty(
        fc.array(fc.array(call, { maxLength: 12 }), { maxLength: 4 }),
        async (rounds) => {
          for (const round of rounds) {
            await Promise.allSettled(
              round.map(({ name, isDeletion, nodePort }) =>
                isDeletion
                  ? client.deleteService({ name })
                  : client.createService({
                      name,
                      spec: { type: Type.NODE_PORT, ports: [{ port: 80, nodePort }] },
                    }),
              ),
            );
            const { services } = await client.listServices({});
            const addresses = services.map(({ status }) => status?.clusterIp);
            const nodePorts = services.map(({ spec }) => spec?.ports[0]?.nodePort);
            expect(new Set(addresses).size).toBe(services.length);
            expect(new Set(nodePorts).size).toBe(services.length);
            const view = bed.state.view();
            for (const { uid, status, spec } of services) {
              const { clusterIp = '' } = status ?? {};
              expect(view.serviceAddress(clusterIp)?.value.serviceUid).toBe(uid);
              expect(view.nodePort(`tcp/${spec?.ports[0]?.nodePort}`)?.value.serviceUid).toBe(uid);
            }
            expect([...view.nodePorts()]).toHaveLength(services.length);
          }
          await bed.clock.advance(HOUR_MS);
        },
      ),
      { numRuns: 15 },
    );
  });
});

describe('UpdateService', () => {
  it('changes the fields that are present or named, and keeps the address', async () => {
    const { status } = await client.createService({
      name: 'web',
      spec: { ports, workload: 'web', proxyProtocol: true },
      labels: { a: '1', b: '2' },
    });
    const updated = await client.updateService({
      name: 'web',
      spec: { ports: [{ port: 81, protocol: Protocol.UDP }] },
      labels: { a: '', c: '3' },
    });
    expect(updated).toMatchObject({
      ...{ generation: 2n, labels: { b: '2', c: '3' } },
      spec: { workload: 'web', proxyProtocol: true, ports: [{ name: 'port-81', port: 81 }] },
      status: { clusterIp: status?.clusterIp },
    });
    const updateMask = { paths: ['proxy_protocol'] };
    const cleared = await client.updateService({ name: 'web', spec: {}, updateMask });
    expect(cleared).toMatchObject({ generation: 3n, spec: { proxyProtocol: false } });
    const same = await client.updateService({ name: 'web', spec: {}, updateMask });
    expect(same.generation).toBe(3n);
  });

  it('refuses an outdated generation and a change between kinds of services', async () => {
    await addressOf('web');
    const wrong = client.updateService({ name: 'web', expectedGeneration: 2n });
    await expect(wrong).rejects.toThrow('service "default/web" is at generation 1, not 2');
    const headless = client.updateService({ name: 'web', spec: { headless: true } });
    await expect(headless).rejects.toThrow('spec.headless: cannot change');
  });

  it('chooses ports of nodes, keeps them for ports of the same name, and releases them', async () => {
    const spec = { type: Type.NODE_PORT, ports: [{ name: 'http', port: 80 }] };
    const created = await client.createService({ name: 'web', spec });
    const nodePort = created.spec?.ports[0]?.nodePort ?? 0;
    expect(nodePort).toBeGreaterThanOrEqual(30_000);
    const moved = await client.updateService({
      name: 'web',
      spec: {
        ports: [
          { name: 'http', port: 8080 },
          { name: 'admin', port: 9090 },
        ],
      },
    });
    expect(moved.spec?.ports[0]?.nodePort).toBe(nodePort);
    await expect(
      client.createService({
        name: 'other',
        spec: { type: Type.NODE_PORT, ports: [{ port: 80, nodePort }] },
      }),
    ).rejects.toThrow(`spec.ports[0].node_port: node port ${nodePort} belongs to another service`);
    const updateMask = { paths: ['type'] };
    const internal = await client.updateService({ name: 'web', spec: {}, updateMask });
    expect(internal.spec?.ports.map((port) => port.nodePort)).toEqual([0, 0]);
    expect([...bed.state.view().nodePorts()]).toEqual([]);
  });

  it('changes the balancing, and refuses values that contradict each other', async () => {
    await addressOf('web');
    const config = { maxConnections: 10, healthCheck: { path: '/healthz', type: 1 } };
    await client.updateLoadBalancerConfig({ service: 'web', config });
    expect(await client.getLoadBalancerConfig({ service: 'web' })).toMatchObject({
      ...{ maxConnections: 10, localityAware: true },
      healthCheck: { path: '/healthz', interval: { seconds: 10n }, unhealthyThreshold: 3 },
    });
    const idle = client.updateLoadBalancerConfig({
      service: 'web',
      config: { idleTimeout: { seconds: 60n } },
    });
    await expect(idle).rejects.toThrow('config.idle_timeout: must be 0 or at least 1 h');
  });
});

describe('ListServices and DeleteService', () => {
  it('lists services by namespace and name in pages', async () => {
    for (const [namespace, name] of [
      ['b', 'x'],
      ['a', 'z'],
      ['a', 'y'],
    ] as const)
      await client.createService({ namespace, name, spec: { ports, workload: name } });
    const first = await client.listServices({ pageSize: 2 });
    const second = await client.listServices({ pageSize: 2, pageToken: first.nextPageToken });
    const names = [...first.services, ...second.services].map(
      (item) => `${item.namespace}/${item.name}`,
    );
    expect(names).toEqual(['a/y', 'a/z', 'b/x']);
    expect((await client.listServices({ workload: 'z' })).services).toHaveLength(1);
    expect((await client.listServices({ namespace: 'b' })).services).toHaveLength(1);
  });

  it('deletes a service once', async () => {
    await addressOf('web');
    await client.deleteService({ name: 'web' });
    await expect(client.getService({ name: 'web' })).rejects.toThrow(
      '[not_found] service "default/web" not found',
    );
    await expect(client.deleteService({ name: 'web' })).rejects.toThrow('not_found');
  });
});
