import { ManualClock } from '@cloudless/base/testing';
import { createMemoryStateStore, digestContent, exportSnapshot } from '@cloudless/state-store';
import { openEtcdStateStore } from '../store/etcd-state-store.js';
import { describeEtcd } from '../testing/describe-etcd.js';
import { EtcdCluster } from '../testing/index.js';
import { restoreEtcdStateStore } from './restore-etcd-store.js';

const CLUSTER = { clusterId: 'cluster-1', schemaVersion: 1 };

/** A store with more entries than one transaction can put, and an entry on a lease. */
async function createSource() {
  const source = createMemoryStateStore({ clock: new ManualClock() });
  for (let group = 0; group < 5; group += 1)
    await source.txn(
      [],
      Array.from({ length: 90 }, (_, index) => ({
        put: `/kind/${group}-${index}`,
        value: new Uint8Array(3_000).fill(index),
      })),
    );
  const lease = await source.grantLease(1_000);
  await source.txn([], [{ put: '/leased', value: new Uint8Array(1), lease }]);
  return source;
}

describeEtcd('a store in etcd that is restored from a snapshot', () => {
  let cluster: EtcdCluster;
  beforeAll(async () => (cluster = await EtcdCluster.start({ members: 1 })));
  afterAll(() => cluster.stop());

  it('has the same content, and newer revisions than the snapshot', async () => {
    const source = await createSource();
    const options = { endpoints: cluster.endpoints, prefix: '/restored', allowForeignKeys: true };
    const openChunks = () => exportSnapshot(source, CLUSTER);
    const summary = await restoreEtcdStateStore({ ...options, openChunks });
    const store = await openEtcdStateStore(options);
    try {
      expect(summary.entries).toBe(450);
      expect(await digestContent(store)).toEqual(await digestContent(source));
      const { entries } = await store.range({ prefix: '' });
      for (const { modRevision } of entries) expect(modRevision).toBeGreaterThan(summary.revision);
      await expect(store.range({ prefix: '', revision: 1n })).rejects.toMatchObject({
        kind: 'compacted',
      });
      const first = entries[0];
      await store.txn(
        [{ key: first?.key ?? '', is: first?.modRevision ?? 'absent' }],
        [{ put: '/after', value: new Uint8Array() }],
      );
    } finally {
      await store.close();
    }
    await expect(restoreEtcdStateStore({ ...options, openChunks })).rejects.toMatchObject({
      kind: 'precondition',
      message: expect.stringContaining('etcd already has keys under /restored'),
    });
  });

  it('has the changed value of an entry that the caller changes', async () => {
    const source = await createSource();
    const options = { endpoints: cluster.endpoints, prefix: '/changed', allowForeignKeys: true };
    const value = new TextEncoder().encode('changed');
    await restoreEtcdStateStore({
      ...options,
      openChunks: () => exportSnapshot(source, CLUSTER),
      changeEntry: (entry) => (entry.key === '/kind/2-7' ? { ...entry, value } : entry),
    });
    const store = await openEtcdStateStore(options);
    const { entries } = await store.range({ prefix: '/kind/2-' });
    const changed = entries.filter((entry) => entry.value.byteLength === value.byteLength);
    expect(changed.map(({ key }) => key)).toEqual(['/kind/2-7']);
    await store.close();
  });

  it('is not created from a damaged snapshot', async () => {
    const source = await createSource();
    const options = { endpoints: cluster.endpoints, prefix: '/damaged', allowForeignKeys: true };
    async function* openChunks() {
      for await (const chunk of exportSnapshot(source, CLUSTER)) yield chunk.subarray(1);
    }
    await expect(restoreEtcdStateStore({ ...options, openChunks })).rejects.toMatchObject({
      kind: 'precondition',
    });
    const store = await openEtcdStateStore(options);
    expect(await store.revision()).toBe(0n);
    await store.close();
  });
});
