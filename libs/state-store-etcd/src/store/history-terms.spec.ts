import { describeEtcd } from '../testing/describe-etcd.js';
import { EtcdCluster } from '../testing/index.js';
import { openEtcdStateStore, type EtcdStateStore } from './etcd-state-store.js';

const VALUE = new Uint8Array(100);
const HISTORY_LIMIT = 100;
const CHANGES_PER_TERM = 60;
const TERMS = 5;

describeEtcd('the history of a store on etcd', () => {
  let cluster: EtcdCluster;
  beforeAll(async () => (cluster = await EtcdCluster.start({ members: 1 })));
  afterAll(() => cluster.stop());

  const open = (historyBytes?: number): Promise<EtcdStateStore> =>
    openEtcdStateStore({
      endpoints: cluster.endpoints,
      prefix: `/store-${historyBytes ?? 0}`,
      historyLimit: HISTORY_LIMIT,
      compactAfterMs: 0,
      allowForeignKeys: true,
      ...(historyBytes === undefined ? {} : { historyBytes }),
    });

  /** Leads for some changes, in a process of its own, of which every third is a deletion. */
  async function lead(store: EtcdStateStore, changes: number): Promise<void> {
    store.setCompacting(true);
    await change(store, changes);
    await store.waitUntilCompacted();
  }

  async function change(store: EtcdStateStore, changes: number): Promise<void> {
    for (let number = 1; number <= changes; number += 1) {
      const isDeletion = number % 3 === 0;
      await store.txn([], [isDeletion ? { delete: 'a' } : { put: 'a', value: VALUE }]);
    }
  }

  it.each([
    { limit: 'changes', historyBytes: undefined, retained: HISTORY_LIMIT * 1.5 },
    { limit: 'bytes', historyBytes: 2_500, retained: 40 },
  ])(
    'is dropped beyond the limit of $limit when each of several leaders wrote only a part',
    async ({ historyBytes, retained }) => {
      for (let term = 1; term <= TERMS; term += 1) {
        const store = await open(historyBytes);
        await lead(store, CHANGES_PER_TERM);
        const newest = await store.revision();
        if (term === TERMS) {
          await expect(
            readFirst(store, newest - BigInt(Math.ceil(retained))),
          ).rejects.toMatchObject({ kind: 'compacted' });
          if (historyBytes === undefined) await readFirst(store, newest - BigInt(HISTORY_LIMIT));
        }
        await store.close();
      }
    },
  );

  it('is dropped by a leader that writes almost nothing, after all coordinators have restarted', async () => {
    for (let term = 1; term <= 3; term += 1) {
      const store = await open();
      await change(store, 150); // and ends before it compacts
      await store.close();
    }
    const store = await open();
    try {
      await lead(store, 1);
      const newest = await store.revision();
      const tooOld = newest - BigInt(HISTORY_LIMIT * 1.5);
      await expect(readFirst(store, tooOld)).rejects.toMatchObject({ kind: 'compacted' });
      await readFirst(store, newest - BigInt(HISTORY_LIMIT));
    } finally {
      await store.close();
    }
  });

  it('keeps its newest changes when a former leader and its successor compact at once', async () => {
    const [former, successor] = [await open(), await open()];
    try {
      former.setCompacting(true);
      await Promise.all([lead(former, 200), lead(successor, 200)]);
      await readFirst(former, (await former.revision()) - BigInt(HISTORY_LIMIT));
    } finally {
      await Promise.all([former.close(), successor.close()]);
    }
  });
});

/** Reads the first batch after a revision. */
async function readFirst(store: EtcdStateStore, after: bigint): Promise<void> {
  for await (const { revision } of store.watch({ prefix: '', after })) {
    expect(revision).toBe(after + 1n);
    return;
  }
}
