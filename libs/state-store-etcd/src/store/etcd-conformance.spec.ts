import { describeStateStore } from '@cloudless/state-store/conformance';
import { EtcdCluster } from '../testing/index.js';
import { describeEtcd } from '../testing/describe-etcd.js';
import { openEtcdStateStore, type EtcdStateStore } from './etcd-state-store.js';

/** The end of a lease is a change, which would count in the revisions of the next test. */
function revokeLeasesAtClose(store: EtcdStateStore): void {
  const { grantLease, close } = store;
  const leases: string[] = [];
  store.grantLease = async (ttlMs) => {
    const lease = await grantLease.call(store, ttlMs);
    leases.push(lease);
    return lease;
  };
  store.close = async () => {
    await Promise.all(leases.splice(0).map((lease) => store.revokeLease(lease))).catch(
      () => undefined, // closed by the test
    );
    await close.call(store);
  };
}

describeEtcd('with three members of etcd', () => {
  let cluster: EtcdCluster;
  let stores = 0;
  beforeAll(async () => (cluster = await EtcdCluster.start()));
  afterAll(() => cluster.stop());

  describeStateStore(
    'etcd',
    async ({ historyLimit, historyBytes }) => {
      stores += 1;
      const store = await openEtcdStateStore({
        endpoints: cluster.endpoints,
        prefix: `/store-${stores}`,
        historyLimit,
        compactAfterMs: 0,
        ...(historyBytes === undefined ? {} : { historyBytes }),
        allowForeignKeys: true,
      });
      store.setCompacting(true);
      // The suite expects the history to be dropped before the next call.
      const txn = store.txn.bind(store);
      store.txn = async (compares, operations) => {
        const committed = await txn(compares, operations);
        await store.waitUntilCompacted();
        return committed;
      };
      revokeLeasesAtClose(store);
      return store;
    },
    { sharesRevisions: true, minimumLeaseMs: 2_000, buffersWatches: true, propertyScale: 0.2 },
  );
});
