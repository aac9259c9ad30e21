import { create, type MessageInitShape } from '@bufbuild/protobuf';
import { hostPortsOf } from './host-ports.js';
import { Port_Protocol as Protocol, WorkloadSpecSchema } from './gen.js';

describe('hostPortsOf', () => {
  const web = { containerPort: 80 };
  const dns = { containerPort: 53, protocol: Protocol.UDP };
  it.each<{ name: string; spec: MessageInitShape<typeof WorkloadSpecSchema>; ports: string[] }>([
    { name: 'declared ports alone take none', spec: { ports: [web, dns] }, ports: [] },
    {
      name: 'a host port',
      spec: { ports: [{ ...web, hostPort: 8080 }, dns] },
      ports: ['tcp 8080'],
    },
    { name: 'one of UDP', spec: { ports: [{ ...dns, hostPort: 5353 }] }, ports: ['udp 5353'] },
    {
      name: 'all that are declared, with the network of the node',
      spec: { ports: [web, dns], network: { hostNetwork: true } },
      ports: ['tcp 80', 'udp 53'],
    },
    {
      name: 'each once, also where both say so',
      spec: { ports: [{ ...web, hostPort: 80 }], network: { hostNetwork: true } },
      ports: ['tcp 80'],
    },
    { name: 'none declared', spec: { network: { hostNetwork: true } }, ports: [] },
    {
      name: 'other settings of the network',
      spec: { ports: [web], network: { hostname: 'web' } },
      ports: [],
    },
  ])('$name', ({ spec, ports }) => {
    expect(
      hostPortsOf(create(WorkloadSpecSchema, spec)).map(
        ({ protocol, number }) => `${protocol} ${number}`,
      ),
    ).toEqual(ports);
  });
});
