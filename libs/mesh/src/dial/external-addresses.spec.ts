import { create } from '@bufbuild/protobuf';
import { NetworkUpdateSchema } from '@cloudless/api';
import { NetworkModel } from '../model/network-model.js';
import { ExternalAddresses } from './external-addresses.js';

describe('ExternalAddresses', () => {
  const model = new NetworkModel();
  const own = ['192.168.1.4'];
  const external = new ExternalAddresses(model, () => own);
  const update = (nodes: Readonly<Record<string, string>>, removedNodes: string[] = []): void =>
    external.apply(
      model.apply(
        create(NetworkUpdateSchema, {
          settings: { serviceCidr: '10.96.0.0/16' },
          nodes: Object.entries(nodes).map(([id, address]) => ({ id, network: { address } })),
          removedNodes,
        }),
      ),
    );

  it.each([
    ['127.0.0.1', 'is a loopback address'],
    ['100.100.100.200', 'serves the credentials of machines'],
    ['64:ff9b::a9fe:a9fe', 'is a translated address'],
    ['10.96.0.1', 'the range of virtual addresses'],
    ['192.168.1.4', 'is an address of this machine'],
    ['10.0.0.5', 'is an address of the node "a"'],
    ['FD12:0::6', 'is an address of the node "b"'],
  ])('refuse %s: %s', (address, reason) => {
    update({ a: '10.0.0.5:9443', b: '[fd12::6]:9443', c: 'c.example.com:9443' });
    expect(external.explainRefused(address)).toContain(reason);
    expect(external.explainRefused('10.0.0.7')).toBeUndefined();
  });

  it('follow the addresses of nodes and of this machine', () => {
    update({ a: '10.0.0.5:9443', d: '10.0.0.5:9444' });
    update({ a: '10.0.0.8:9443' });
    expect(external.explainRefused('10.0.0.5')).toContain('the node "d"');
    update({}, ['d']);
    expect(external.explainRefused('10.0.0.5')).toBeUndefined();
    expect(external.explainRefused('10.0.0.8')).toContain('the node "a"');
    own.push('10.0.0.9');
    expect(external.explainRefused('10.0.0.9')).toContain('this machine');
  });
});
