import { create } from '@bufbuild/protobuf';
import { toContainerId } from '@cloudless/base';
import { WorkloadSpecSchema, type WorkloadSpec } from '@cloudless/api';
import { aStartOrder } from '../testing/index.js';
import { toContainerRequest } from '../container/to-container-request.js';
import { createServiceVariables, MAX_SERVICES_IN_ENVIRONMENT } from './service-discovery.js';
import type { ServiceAccess } from './node-network.js';

const http = { name: 'http', port: 80 };

describe('createServiceVariables', () => {
  it('names the address of the first port, and the number of each named port', () => {
    const ports = [http, { name: 'admin-ui', port: 9_000 }, { name: '', port: 5 }];
    expect(createServiceVariables([{ name: 'my-web', address: '10.96.0.7', ports }])).toEqual({
      CLOUDLESS_SERVICE_MY_WEB_HOST: '10.96.0.7',
      CLOUDLESS_SERVICE_MY_WEB_PORT: '80',
      CLOUDLESS_SERVICE_MY_WEB_ADDR: '10.96.0.7:80',
      CLOUDLESS_SERVICE_MY_WEB_PORT_HTTP: '80',
      CLOUDLESS_SERVICE_MY_WEB_PORT_ADMIN_UI: '9000',
    });
  });

  it('leaves out services without ports', () => {
    expect(createServiceVariables([{ name: 'a', address: '10.96.0.7', ports: [] }])).toEqual({});
  });

  it('contains a bounded number of services, the first by name', () => {
    const services = Array.from({ length: MAX_SERVICES_IN_ENVIRONMENT + 50 }, (_, index) => ({
      name: `s${String(index).padStart(4, '0')}`,
      address: '10.96.0.7',
      ports: [{ name: '', port: 80 }],
    })).reverse();
    const variables = createServiceVariables(services);
    expect(Object.keys(variables)).toHaveLength(3 * MAX_SERVICES_IN_ENVIRONMENT);
    expect(variables).toHaveProperty('CLOUDLESS_SERVICE_S0000_HOST');
  });
});

describe('toContainerRequest with services', () => {
  const services: ServiceAccess = {
    dns: { server: '10.96.0.10', domain: 'cloudless.internal' },
    services: [{ name: 'db', address: '10.96.0.7', ports: [{ name: '', port: 5_432 }] }],
  };
  const convert = (spec: Partial<WorkloadSpec>, access = services) =>
    toContainerRequest(aStartOrder({ spec: create(WorkloadSpecSchema, spec as object) }), {
      ...{ clusterId: 'cluster-1', nodeId: 'node-1', containerId: toContainerId('a'.repeat(64)) },
      services: access,
    });
  const ADDRESS = 'CLOUDLESS_SERVICE_DB_ADDR';

  const DNS = {
    dnsServers: ['10.96.0.10'],
    dnsSearches: ['default.svc.cloudless.internal', 'svc.cloudless.internal', 'cloudless.internal'],
    dnsOptions: ['ndots:5'],
  };

  it('gives a process the addresses of the services as variables, and the DNS server', () => {
    const { env, network } = convert({ command: ['sleep', '1'] });
    expect([env[ADDRESS], network]).toEqual(['10.96.0.7:5432', DNS]);
  });

  it('keeps a variable of the spec with the name of a variable of a service', () => {
    expect(convert({ command: ['a'], env: { [ADDRESS]: 'own' } }).env[ADDRESS]).toBe('own');
  });

  it('gives a container the DNS server of the node and the domains of its namespace', () => {
    const { env, network } = convert({ image: 'a' });
    expect(env).not.toHaveProperty(ADDRESS);
    expect(network).toEqual(DNS);
  });

  it('gives a container in the network of the node variables and no DNS server', () => {
    const { env, network } = convert({ image: 'a', network: { hostNetwork: true } as never });
    expect([env[ADDRESS], network?.dnsServers]).toEqual(['10.96.0.7:5432', undefined]);
  });

  it('keeps the DNS servers that the spec names', () => {
    const { network } = convert({ image: 'a', network: { dnsServers: ['9.9.9.9'] } as never });
    expect(network).toEqual({ dnsServers: ['9.9.9.9'] });
  });

  it('sets no DNS server while the node has none', () => {
    for (const spec of [{ image: 'a' }, { command: ['a'] }])
      expect(convert(spec, { services: services.services }).network).toBeUndefined();
  });
});
