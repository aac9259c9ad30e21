import { readFile, rename, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { createGrpcTransport } from '@connectrpc/connect-node';
import { definedFields } from '@cloudless/base';
import { createAdminClient, createCoordinatorClient, type Workload } from '@cloudless/api';
import { markRestored } from '@cloudless/cluster-state';
import type { StateStore, StoreEntry } from '@cloudless/state-store';
import { openLmdbStateStore } from '@cloudless/state-store-lmdb';
import { systemClock } from '@cloudless/app-kit';
import { QUICK, RealCluster } from './support/cluster.js';
import { RunningProgram, findBundle } from './support/processes.js';

let cluster: RealCluster;
beforeAll(async () => {
  cluster = await RealCluster.start(['zone-a']);
});
afterAll(() => cluster.stop());

const WRITERS = ['writer-1', 'writer-2', 'writer-3'];

/** Updates one workload continuously and records the acknowledged workloads. */
class Writer {
  readonly acknowledged: Workload[] = [];
  private stopped = false;
  private readonly work: Promise<void>;

  constructor(private readonly name: string) {
    this.work = this.run();
  }

  get newest(): bigint {
    return this.acknowledged.at(-1)?.generation ?? 0n;
  }

  async stop(): Promise<void> {
    this.stopped = true;
    await this.work;
  }

  private async run(): Promise<void> {
    const { client } = cluster;
    while (!this.stopped) {
      const labels = { count: String(this.acknowledged.length) };
      this.acknowledged.push(await client.updateWorkload({ name: this.name, spec: { labels } }));
    }
  }
}

async function listEntries(store: StateStore, revision?: bigint): Promise<readonly StoreEntry[]> {
  const { entries } = await store.range({
    prefix: '',
    limit: 1_000_000,
    ...definedFields({ revision }),
  });
  return entries.map((entry) => ({ ...entry, value: new Uint8Array(entry.value) }));
}

/** Reads the entries of a data directory without a coordinator. */
async function readContent(directory: string, revision?: bigint): Promise<readonly StoreEntry[]> {
  const store = await openLmdbStateStore({ directory, clock: systemClock });
  try {
    return await listEntries(store, revision);
  } finally {
    await store.close();
  }
}

describe('backup of a cluster', () => {
  it('contains the state at one revision when it is taken during writes, and can be restored', async () => {
    const { client, directory } = cluster;
    for (let index = 0; index < 100; index += 1)
      await client.createWorkload({
        name: `idle-${index}`,
        spec: { command: ['true'], replicas: 0, labels: { index: `${index}` } },
      });
    for (const name of WRITERS)
      await client.createWorkload({ name, spec: { command: ['true'], replicas: 0 } });
    await client.createWorkload({
      name: 'web',
      spec: { ...QUICK, command: ['sleep', '1000'], replicas: 2 },
    });
    const web = await cluster.waitUntilSettled('web');

    const writers = WRITERS.map((name) => new Writer(name));
    const file = join(directory, 'cluster.backup');
    const before = writers.map(({ newest }) => newest);
    const backup = await cluster.runCtl('admin', 'backup', file, '-o', 'json');
    const after = writers.map(({ newest }) => newest);
    await Promise.all(writers.map((writer) => writer.stop()));
    expect(backup).toMatchObject({ code: 0, stderr: '' });
    const summary = JSON.parse(backup.stdout) as {
      revision: string;
      entries: number;
      bytes: number;
      clusterId: string;
    };
    expect(summary.bytes).toBe((await readFile(file)).length);
    for (const [index, generation] of after.entries())
      expect(generation).toBeGreaterThan(before[index] ?? 0n);

    // the store of the cluster still retains the revision of the backup for a comparison
    await cluster.coordinatorProcess.kill('SIGKILL');
    const restored = join(directory, 'restored');
    const { code, stdout } = await cluster.runCtl('admin', 'restore', file, '--data-dir', restored);
    expect({ code, stdout }).toMatchObject({
      code: 0,
      stdout: expect.stringContaining(`revision ${summary.revision} of cluster`) as string,
    });
    const expected = await readContent(join(directory, 'coordinator'), BigInt(summary.revision));
    // The restore marks the record of the cluster, so that nothing is decided before an acceptance.
    expect(await readContent(restored)).toEqual(expected.map(markRestored));
    expect(expected).toHaveLength(summary.entries);

    // A coordinator on the restored directory shows the workloads of that revision.
    const args = ['--tls', 'off', '--port', '0', '--ops-port', '0', '--data-dir', restored];
    const coordinator = RunningProgram.start(process.execPath, [
      findBundle('coordinator'),
      ...args,
    ]);
    try {
      const { url, clusterId } = await coordinator.waitForLog('coordinator ready');
      expect(clusterId).toBe(summary.clusterId);
      const transport = createGrpcTransport({ baseUrl: String(url) });
      const restoredClient = createCoordinatorClient(transport);
      for (const [index, { acknowledged }] of writers.entries()) {
        const { generation, spec } = await restoredClient.getWorkload({
          name: WRITERS[index] ?? '',
        });
        expect(generation).toBeGreaterThanOrEqual(before[index] ?? 0n);
        const acknowledgedWorkload = acknowledged.find(
          (workload) => workload.generation === generation,
        );
        expect(spec?.labels).toEqual(generation === 1n ? {} : acknowledgedWorkload?.spec?.labels);
      }
      expect((await restoredClient.listWorkloads({ pageSize: 1_000 })).workloads).toHaveLength(104);
      const listReplicas = ({ status }: Workload): readonly string[] =>
        (status?.replicas ?? []).map(({ id }) => id).sort();
      expect(listReplicas(await restoredClient.getWorkload({ name: 'web' }))).toEqual(
        listReplicas(web),
      );
      await expect(restoredClient.scaleWorkload({ name: 'idle-7', replicas: 1 })).rejects.toThrow(
        'the store was restored from a backup',
      );
      await createAdminClient(transport).acceptRestoredState({});
      await restoredClient.scaleWorkload({ name: 'idle-7', replicas: 0 });
    } finally {
      await coordinator.kill('SIGTERM');
    }
    await cluster.startCoordinator();
  });

  it('is refused by a restore when it is altered or truncated, and no directory is created', async () => {
    const { directory } = cluster;
    const file = join(directory, 'damaged.backup');
    expect(await cluster.runCtl('admin', 'backup', file)).toMatchObject({ code: 0 });
    const whole = await readFile(file);
    const restored = join(directory, 'never');
    const restoreDamaged = async (bytes: Uint8Array): Promise<unknown> => {
      await writeFile(file, bytes);
      const { code, stdout, stderr } = await cluster.runCtl(
        'admin',
        'restore',
        file,
        '--data-dir',
        restored,
      );
      await expect(rename(restored, `${restored}-was-made`)).rejects.toMatchObject({
        code: 'ENOENT',
      });
      return { code, stdout, stderr };
    };
    const altered = Buffer.from(whole);
    const middle = altered.indexOf('idle-50');
    altered.writeUInt8(altered.readUInt8(middle) ^ 1, middle);
    const describeDamage = (problem: string): unknown => ({
      code: 4,
      stdout: '',
      stderr: `cloudlessctl: ${file}: the backup is damaged: ${problem}; do not trust any part of it, use another backup\n`,
    });
    expect(await restoreDamaged(altered)).toEqual(describeDamage('its SHA-256 does not match'));
    const cut = Math.floor(whole.length / 2);
    expect(await restoreDamaged(whole.subarray(0, cut))).toEqual(
      describeDamage(`it is truncated after ${cut} bytes`),
    );
    expect(await restoreDamaged(Buffer.from('workloads:\n'))).toMatchObject({
      code: 4,
      stderr: `cloudlessctl: ${file}: not a backup of a Cloudless cluster: the first bytes are not those of a backup\n`,
    });
  });

  it('is refused by a restore into the data directory of a coordinator', async () => {
    const file = join(cluster.directory, 'good.backup');
    expect(await cluster.runCtl('admin', 'backup', file)).toMatchObject({ code: 0 });
    const dataDir = join(cluster.directory, 'coordinator');
    const { code, stderr } = await cluster.runCtl('admin', 'restore', file, '--data-dir', dataDir);
    expect(code).toBe(4);
    expect(stderr).toContain(`data directory ${dataDir} is not empty, it holds `);
    expect(stderr).toContain('store.mdb');
  });

  it('fails without a coordinator and leaves no file', async () => {
    const file = join(cluster.directory, 'unfinished.backup');
    await cluster.coordinatorProcess.kill('SIGKILL');
    const { code, stderr } = await cluster.runCtl('admin', 'backup', file);
    expect(code).toBe(5);
    expect(stderr).toContain('cannot reach the coordinator');
    await expect(readFile(file)).rejects.toMatchObject({ code: 'ENOENT' });
    await cluster.startCoordinator();
  });
});
