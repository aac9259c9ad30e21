import { create } from '@bufbuild/protobuf';
import { NetworkServiceEntrySchema, ServiceSpec_Type as Type } from '@cloudless/api';
import { planListeners } from './plan-listeners.js';

const plan = (type: Type, clusterIp = '10.96.0.20') => {
  const ports = [
    { name: 'http', port: 80, nodePort: 30_080 },
    { name: 'dns', port: 53, protocol: 1 },
  ];
  const spec = { type, ports, externalIps: ['192.168.7.7'] };
  const entry = create(NetworkServiceEntrySchema, { spec, clusterIp });
  return planListeners('default/web', entry, ['192.168.1.5', '192.168.2.5']).map(
    ({ protocol, address, port, scope }) => `${protocol} ${address}:${port} ${scope}`,
  );
};

const VIRTUAL = ['tcp 10.96.0.20:80 virtual', 'udp 10.96.0.20:53 virtual'];
const NODE_PORTS = ['tcp 192.168.1.5:30080 node', 'tcp 192.168.2.5:30080 node'];
const EXTERNAL = ['tcp 192.168.7.7:80 external', 'udp 192.168.7.7:53 external'];

describe('the addresses at which a proxy listens', () => {
  it.each([
    { name: 'CLUSTER_IP', type: Type.CLUSTER_IP, expected: VIRTUAL },
    { name: 'NODE_PORT', type: Type.NODE_PORT, expected: [...VIRTUAL, ...NODE_PORTS] },
    {
      ...{ name: 'LOAD_BALANCER', type: Type.LOAD_BALANCER },
      expected: [...VIRTUAL, ...NODE_PORTS, ...EXTERNAL],
    },
  ])('for a service of the type $name are those of the type', ({ type, expected }) => {
    expect(plan(type).sort()).toEqual([...expected].sort());
  });

  it('for a service without a virtual address are its node ports only', () => {
    expect(plan(Type.NODE_PORT, '')).toEqual(NODE_PORTS);
  });
});
