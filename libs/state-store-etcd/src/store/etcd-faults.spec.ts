import { createSeededRandom } from '@cloudless/base';
import type { ChangeBatch, StateStore } from '@cloudless/state-store';
import {
  checkStoreHistory,
  checkWatch,
  readStoreLog,
  runConcurrentClients,
} from '@cloudless/state-store/linearizability';
import { describeEtcd } from '../testing/describe-etcd.js';
import { EtcdCluster } from '../testing/index.js';
import { openEtcdStateStore, type EtcdStateStore } from './etcd-state-store.js';

const CLIENTS = 6;

/** A fault during concurrent calls; resolves when the cluster is healthy again. */
const FAULTS: readonly {
  readonly name: string;
  readonly inject: (cluster: EtcdCluster, store: EtcdStateStore) => Promise<void>;
}[] = [
  {
    name: 'the member that the stores use is killed and returns',
    inject: async ({ members: [first] }) => {
      await first?.kill('SIGKILL');
      first?.start();
    },
  },
  {
    name: 'the leader of etcd is killed and returns',
    inject: async (cluster) => {
      const leader = await cluster.findLeader();
      await leader?.kill('SIGKILL');
      leader?.start();
    },
  },
  {
    name: 'the member that the stores use stops and goes on',
    inject: async ({ members: [first] }, store) => {
      await first?.kill('SIGSTOP');
      await writeUntilAcknowledged(store);
      await first?.kill('SIGCONT');
    },
  },
  { name: 'the leader of etcd moves', inject: (cluster) => cluster.moveLeader() },
  {
    name: 'members are defragmented',
    inject: async (cluster) => void (await cluster.etcdctl('defrag')),
  },
];

/**
 * Each fault lasts for some seconds of real time: a member that stopped is found by the time limit of
 * a call, and etcd elects a leader after 1 s.
 */
describeEtcd('a store on three members of etcd', () => {
  let cluster: EtcdCluster;
  let stores = 0;
  beforeAll(async () => (cluster = await EtcdCluster.start()));
  afterAll(() => cluster.stop());

  it.each(FAULTS)('stays strictly serializable, and watches gapless, when $name', async (fault) => {
    const prefix = `/store-${(stores += 1)}`;
    const { endpoints } = cluster;
    const options = { endpoints, prefix, allowForeignKeys: true };
    const [first, second] = [await openEtcdStateStore(options), await openEtcdStateStore(options)];
    try {
      const watched = recordWatch(second);
      const running = runConcurrentClients(first, {
        random: createSeededRandom(stores),
        clients: CLIENTS,
        callsPerClient: 150,
        storeOf: (client) => (client % 2 === 0 ? first : second),
      });
      await fault.inject(cluster, second);
      await cluster.waitUntilHealthy();
      const calls = await running;
      await writeUntilAcknowledged(first);
      const log = await readStoreLog(second, await second.revision());
      expect(withoutMarkers(checkStoreHistory(log, calls))).toEqual([]);
      expect(checkWatch(log, await watched(log.batches.at(-1)?.revision ?? 0n))).toEqual([]);
    } finally {
      await Promise.all([first.close(), second.close()]);
    }
  });
});

const MARKER = 'marker';

/** The history does not have the writes of {@link writeUntilAcknowledged}. */
function withoutMarkers(problems: readonly string[]): readonly string[] {
  return problems.filter((problem) => !problem.includes(MARKER));
}

async function writeUntilAcknowledged(store: StateStore): Promise<void> {
  for (;;) {
    try {
      await store.txn([], [{ put: MARKER, value: new Uint8Array() }]);
      return;
    } catch {
      // the outcome is unknown; the key does not matter
    }
  }
}

/**
 * Watches all keys from revision 0 on.
 * @returns A function that resolves with the watch once it has delivered a revision.
 */
function recordWatch(store: StateStore) {
  const batches: ChangeBatch[] = [];
  const watch = store.watch({ prefix: '', after: 0n })[Symbol.asyncIterator]();
  return async (last: bigint) => {
    while ((batches.at(-1)?.revision ?? 0n) < last) {
      const { done, value } = await watch.next();
      if (done === true) throw new Error('the watch ended');
      batches.push(value);
    }
    return { client: 'the watch', prefix: '', after: 0n, batches };
  };
}
