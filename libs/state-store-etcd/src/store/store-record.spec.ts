import { systemClock } from '@cloudless/app-kit';
import { silentLog } from '@cloudless/base';
import { EtcdClient } from '../client/etcd-client.js';
import { describeEtcd } from '../testing/describe-etcd.js';
import { EtcdCluster } from '../testing/index.js';
import { KeySpace } from './key-space.js';
import { completeStoreRecord, createStoreRecord } from './store-record.js';

describeEtcd('the record of a store in etcd', () => {
  let cluster: EtcdCluster;
  beforeAll(async () => (cluster = await EtcdCluster.start({ members: 1 })));
  afterAll(() => cluster.stop());

  it('is not marked as complete when another process has changed the record', async () => {
    const { endpoints } = cluster;
    const client = new EtcdClient({ endpoints, clock: systemClock, log: silentLog });
    try {
      const keys = new KeySpace('/raced');
      const created = await createStoreRecord(client, keys, { base: 1n, isComplete: false });
      await cluster.etcdctl('put', '/raced.store', 'of another restore');
      await expect(
        completeStoreRecord(client, keys, { base: 1n, since: created?.createRevision ?? 0n }),
      ).rejects.toMatchObject({
        kind: 'precondition',
        message: 'another process changed the store in etcd',
      });
      expect(await cluster.etcdctl('get', '/raced.store')).toContain('of another restore');
    } finally {
      client.close();
    }
  });
});
