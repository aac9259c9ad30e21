import { create } from '@bufbuild/protobuf';
import { NetworkServiceEntrySchema } from '@cloudless/api';
import { aService, TestCluster } from '../testing/test-cluster.js';
import { listServiceAddresses } from './list-services.js';

const ENTRIES = [
  { namespace: 'shop', name: 'web', clusterIp: '10.96.0.30' },
  { namespace: 'shop', name: 'db', clusterIp: '10.96.0.20' },
  { namespace: 'shop', name: 'headless', clusterIp: '' },
  { namespace: 'shop-2', name: 'web', clusterIp: '10.96.0.40' },
];
const services = new Map(
  ENTRIES.map((entry) => [
    `${entry.namespace}/${entry.name}`,
    create(NetworkServiceEntrySchema, entry),
  ]),
);

describe('listServiceAddresses', () => {
  it.each([
    { patterns: ['shop/web'], addresses: ['10.96.0.30'] },
    { patterns: ['shop/*'], addresses: ['10.96.0.20', '10.96.0.30'] },
    { patterns: ['*'], addresses: ['10.96.0.20', '10.96.0.30', '10.96.0.40'] },
    {
      patterns: ['shop-2/*', 'shop/web', 'shop-2/web'],
      addresses: ['10.96.0.30', '10.96.0.40'],
    },
    { patterns: ['shop/headless'], addresses: [] },
    { patterns: ['shop/later', 'later/*', 'shop', 'web', '/*', ''], addresses: [] },
    { patterns: [], addresses: [] },
  ])('finds $addresses for $patterns', ({ patterns, addresses }) => {
    const found = listServiceAddresses({ services }, patterns);
    expect(found.map(({ address }) => address)).toEqual(addresses);
  });
});

describe('the addresses of services in a network proxy', () => {
  it('are unknown until a coordinator or the snapshot has told all services', async () => {
    const cluster = await TestCluster.create();
    try {
      const offline = await cluster.addProxy('offline', { isOffline: true });
      expect(offline.proxy.listServiceAddresses(['*'])).toBeUndefined();
      const online = await cluster.addProxy('online');
      await cluster.update({ services: [aService('web', '10.96.0.20')] });
      expect(online.proxy.listServiceAddresses(['default/*'])).toEqual([
        { address: '10.96.0.20', ports: [expect.objectContaining({ protocol: 'tcp' })] },
      ]);
      expect(online.proxy.listServiceAddresses(['default/later'])).toEqual([]);
    } finally {
      await cluster.close();
    }
  });
});
