import { describeEtcd } from '../testing/describe-etcd.js';
import { EtcdCluster } from '../testing/index.js';
import { openEtcdStateStore, type EtcdStateStore } from './etcd-state-store.js';

const QUOTA_BYTES = 4 * 1024 * 1024;
const VALUE = new Uint8Array(500_000).fill(1);

describeEtcd('a store on etcd whose space quota is exceeded', () => {
  let cluster: EtcdCluster;
  let store: EtcdStateStore;
  const spaceChanges: boolean[] = [];
  beforeAll(async () => {
    cluster = await EtcdCluster.start({
      members: 1,
      flags: ['--quota-backend-bytes', String(QUOTA_BYTES)],
    });
    store = await openEtcdStateStore({
      endpoints: cluster.endpoints,
      onSpaceChange: (hasSpace) => void spaceChanges.push(hasSpace),
    });
  });
  afterAll(async () => {
    await store.close();
    await cluster.stop();
  });

  it('refuses writes as exhausted, reads on, and recovers as the documentation says', async () => {
    const lease = await store.grantLease(60_000);
    const writeOften = async (): Promise<void> => {
      // etcd notices in the background that its file has grown beyond the quota
      for (let count = 0; count < 200; count += 1)
        await store.txn([], [{ put: 'a', value: VALUE }]);
    };
    await expect(writeOften()).rejects.toMatchObject({
      kind: 'exhausted',
      reason: 'STORE_FULL',
      message: expect.stringContaining('the space quota of etcd is exceeded'),
    });
    expect(spaceChanges).toEqual([false]);
    expect((await store.get('a'))?.value).toHaveLength(VALUE.length);
    await store.keepAlive(lease);

    // "etcd is full" in docs/operating/etcd.md
    const [status] = JSON.parse(await cluster.etcdctl('endpoint', 'status', '-w', 'json')) as {
      readonly Status: { readonly header: { readonly revision: number } };
    }[];
    await cluster.etcdctl('compact', String(status?.Status.header.revision));
    await cluster.etcdctl('defrag');
    await cluster.etcdctl('alarm', 'disarm');

    await store.txn([], [{ put: 'b', value: VALUE }]);
    expect(spaceChanges).toEqual([false, true]);
  });
});
