import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { systemClock, systemRandom } from '@cloudless/app-kit';
import { silentLog } from '@cloudless/base';
import { openClusterState } from '@cloudless/cluster-state';
import type { StateStore } from '@cloudless/state-store';
import { openEtcdStateStore } from '@cloudless/state-store-etcd';
import { EtcdCluster } from '@cloudless/state-store-etcd/testing';
import { describeEtcd } from '@cloudless/state-store-etcd/testing/describe-etcd';
import { openLmdbStateStore } from '@cloudless/state-store-lmdb';
import { runCli } from '../../testing/run-cli.js';

/** Lets a coordinator create its cluster in a store, and closes the store. */
async function createCluster(store: StateStore): Promise<string> {
  const state = await openClusterState({
    store,
    clock: systemClock,
    random: systemRandom,
    log: silentLog,
    holder: 'test',
  });
  await state.close();
  await store.close();
  return state.clusterId;
}

describeEtcd('cloudlessctl admin migrate', () => {
  let cluster: EtcdCluster;
  let directory: string;
  beforeAll(async () => {
    cluster = await EtcdCluster.start({ members: 1 });
    directory = await mkdtemp(join(tmpdir(), 'cloudless-migrate-'));
  });
  afterAll(async () => {
    await cluster.stop();
    await rm(directory, { recursive: true, force: true });
  });
  const migrate = (to: string, dataDir: string) =>
    runCli([
      ...['admin', 'migrate', dataDir, '--to', to],
      ...['--etcd-endpoints', cluster.endpoints.join(',')],
    ]);

  it('creates nothing in etcd when the source has no store', async () => {
    const { stderr } = await migrate('lmdb', join(directory, 'none'));
    expect(stderr).toContain('etcd has no store under the prefix /cloudless');
    expect(await cluster.etcdctl('get', '--prefix', '/')).toBe('');
  });

  it('copies a cluster from LMDB to etcd and back, with equal checksums', async () => {
    const [first, second] = [join(directory, 'first'), join(directory, 'second')];
    const clusterId = await createCluster(
      await openLmdbStateStore({ directory: first, clock: systemClock }),
    );
    const there = await migrate('etcd', first);
    expect(there).toMatchObject({ exitCode: 0, stderr: '' });
    expect(there.stdout).toContain(`etcd /cloudless: copied cluster ${clusterId}, 2 entries`);
    const store = await openEtcdStateStore({ endpoints: cluster.endpoints });
    expect((await store.range({ prefix: '' })).entries).toHaveLength(2);
    await store.close();
    const back = await migrate('lmdb', second);
    expect(back.exitCode).toBe(0);
    const sha256 = /SHA-256 ([0-9a-f]{64})/.exec(there.stdout)?.[1] ?? 'none';
    expect(back.stdout).toContain(
      `${second}: copied cluster ${clusterId}, 2 entries, SHA-256 ${sha256}`,
    );
    const again = await migrate('etcd', second);
    expect(again.exitCode).not.toBe(0);
    expect(again.stderr).toContain('etcd already has keys under /cloudless');
  });

  it('refuses a source that a coordinator uses', async () => {
    const held = join(directory, 'held');
    const lmdb = await openLmdbStateStore({ directory: held, clock: systemClock });
    const fromLmdb = await migrate('etcd', held);
    expect(fromLmdb.stderr).toContain('in use');
    await lmdb.close();

    const store = await openEtcdStateStore({ endpoints: cluster.endpoints });
    const lease = await store.grantLease(60_000);
    await store.txn([], [{ put: '/coordinator/c1', value: new Uint8Array(), lease }]);
    const fromEtcd = await migrate('lmdb', join(directory, 'target'));
    expect(fromEtcd.stderr).toContain('a coordinator uses the source (/coordinator/c1)');
    await store.revokeLease(lease);
    await store.close();
  });

  it('refuses a source without a cluster, and an unknown engine', async () => {
    const empty = join(directory, 'empty');
    await (await openLmdbStateStore({ directory: empty, clock: systemClock })).close();
    expect((await migrate('etcd', empty)).stderr).toContain('has no state of a cluster');
    expect((await migrate('etcd', join(directory, 'none'))).stderr).toContain(
      'is not a data directory',
    );
    expect((await migrate('mysql', empty)).stderr).toContain('--to must be etcd or lmdb');
  });
});
