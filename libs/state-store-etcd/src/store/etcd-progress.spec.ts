import type { ChangeBatch } from '@cloudless/state-store';
import { describeEtcd } from '../testing/describe-etcd.js';
import { EtcdCluster } from '../testing/index.js';
import { openEtcdStateStore } from './etcd-state-store.js';

const VALUE = new Uint8Array(Buffer.from('value'));

describeEtcd('a watch of all keys on etcd', () => {
  let cluster: EtcdCluster;
  beforeAll(async () => (cluster = await EtcdCluster.start({ members: 1 })));
  afterAll(() => cluster.stop());

  it('reaches the newest revision after a change outside of the store, and misses nothing', async () => {
    const { endpoints } = cluster;
    const [first, second] = [
      await openEtcdStateStore({ endpoints }),
      await openEtcdStateStore({ endpoints }),
    ];
    try {
      const watches = [first, second].map((store) =>
        store.watch({ prefix: '', after: 0n })[Symbol.asyncIterator](),
      );
      const readUntil = async (revision: bigint): Promise<readonly ChangeBatch[]> => {
        const [batches] = await Promise.all(
          watches.map(async (watch) => {
            const read: ChangeBatch[] = [];
            while ((read.at(-1)?.revision ?? -1n) < revision) {
              const { done, value } = await watch.next();
              if (done === true) throw new Error('the watch ended');
              read.push(value);
            }
            return read;
          }),
        );
        return batches ?? [];
      };
      await first.txn([], [{ put: 'a', value: VALUE }]);
      expect(await readUntil(1n)).toHaveLength(1);

      await cluster.etcdctl('put', '/foreign', 'a');
      const revision = await first.revision();
      expect(revision).toBe(2n);
      const marks = await readUntil(revision);
      expect(marks).toEqual([{ revision: 3n, changes: [] }]);

      const { revision: last } = await second.txn([], [{ put: 'b', value: VALUE }]);
      expect(await readUntil(last)).toEqual([
        {
          revision: last,
          changes: [{ kind: 'put', entry: { key: 'b', value: VALUE, modRevision: last } }],
        },
      ]);
      expect((await first.range({ prefix: '' })).entries.map(({ key }) => key)).toEqual(['a', 'b']);
    } finally {
      await Promise.all([first.close(), second.close()]);
    }
  });
});
