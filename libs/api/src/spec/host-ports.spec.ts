import { create, type MessageInitShape } from '@bufbuild/protobuf';
import { Port_Protocol as Protocol, WorkloadSpecSchema } from '../gen.js';
import { listHostPorts } from './host-ports.js';

describe('listHostPorts', () => {
  const web = { containerPort: 80 };
  const dns = { containerPort: 53, protocol: Protocol.UDP };
  it.each<{ name: string; spec: MessageInitShape<typeof WorkloadSpecSchema>; ports: string[] }>([
    { name: 'declared ports without host ports', spec: { ports: [web, dns] }, ports: [] },
    {
      name: 'a host port',
      spec: { ports: [{ ...web, hostPort: 8080 }, dns] },
      ports: ['tcp 8080'],
    },
    { name: 'a UDP host port', spec: { ports: [{ ...dns, hostPort: 5353 }] }, ports: ['udp 5353'] },
    {
      name: 'declared ports with host_network',
      spec: { ports: [web, dns], network: { hostNetwork: true } },
      ports: ['tcp 80', 'udp 53'],
    },
    {
      name: 'host ports with host_network',
      spec: { ports: [{ ...web, hostPort: 80 }], network: { hostNetwork: true } },
      ports: ['tcp 80'],
    },
    {
      name: 'host_network without declared ports',
      spec: { network: { hostNetwork: true } },
      ports: [],
    },
    {
      name: 'a network without host_network',
      spec: { ports: [web], network: { hostname: 'web' } },
      ports: [],
    },
  ])('returns $ports for $name', ({ spec, ports }) => {
    expect(
      listHostPorts(create(WorkloadSpecSchema, spec)).map(
        ({ protocol, number }) => `${protocol} ${number}`,
      ),
    ).toEqual(ports);
  });
});
