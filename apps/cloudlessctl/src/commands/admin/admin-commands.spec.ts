import { mkdir, mkdtemp, readFile, readdir, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Code, ConnectError, createRouterTransport } from '@connectrpc/connect';
import type { Transport } from '@connectrpc/connect';
import type { MessageInitShape } from '@bufbuild/protobuf';
import { timestampFromMs } from '@bufbuild/protobuf/wkt';
import { AdminService, CoordinatorService } from '@cloudless/api';
import type { ServerInfoSchema } from '@cloudless/api';
import { ManualClock } from '@cloudless/base/testing';
import { createMemoryStateStore, exportSnapshot } from '@cloudless/state-store';
import { openLmdbStateStore } from '@cloudless/state-store-lmdb';
import { NOW_MS, runCli } from '../../testing/run-cli.js';

let directory = '';
beforeEach(async () => {
  directory = await mkdtemp(join(tmpdir(), 'cloudless-admin-'));
});
afterEach(() => rm(directory, { recursive: true, force: true }));

/** Exports a store with two entries at revision 2. */
async function exportChunks(): Promise<readonly Uint8Array[]> {
  const store = createMemoryStateStore({ clock: new ManualClock() });
  for (const key of ['/a', '/b'])
    await store.txn([], [{ put: key, value: Buffer.from(`the value of ${key}`) }]);
  const chunks: Uint8Array[] = [];
  for await (const chunk of exportSnapshot(store, { clusterId: 'cluster-1', schemaVersion: 1 }))
    chunks.push(chunk);
  return chunks;
}

/** Creates a coordinator that sends the chunks as a backup and then throws `failure`, if given. */
function createCoordinator(chunks: readonly Uint8Array[], failure?: ConnectError): Transport {
  return createRouterTransport(({ service }) =>
    service(AdminService, {
      backup: async function* () {
        for (const data of chunks) yield { data };
        if (failure !== undefined) throw failure;
      },
    }),
  );
}

const runBackup = async (file: string, ...more: readonly string[]) =>
  runCli(['admin', 'backup', file, ...more], {
    transport: createCoordinator(await exportChunks()),
  });

describe('cloudlessctl admin backup', () => {
  it('writes the backup to a file that only its owner can read', async () => {
    const file = join(directory, 'today.backup');
    const { exitCode, stdout } = await runBackup(file);
    expect({ exitCode, stdout }).toEqual({
      exitCode: 0,
      stdout: `${file}: saved revision 2 of cluster cluster-1, 2 entries, 155 bytes\n`,
    });
    expect((await readFile(file)).equals(Buffer.concat([...(await exportChunks())]))).toBe(true);
    expect((await stat(file)).mode & 0o777).toBe(0o600);
    expect(await readdir(directory)).toEqual(['today.backup']);
  });

  it('prints the summary of the backup as JSON', async () => {
    const file = join(directory, 'today.backup');
    expect(JSON.parse((await runBackup(file, '-o', 'json')).stdout)).toEqual({
      file,
      clusterId: 'cluster-1',
      schemaVersion: 1,
      revision: '2',
      entries: 2,
      bytes: 155,
      sha256: expect.stringMatching(/^[0-9a-f]{64}$/) as string,
    });
  });

  it('rejects an existing file before it connects, and overwrites the file with --force', async () => {
    const file = join(directory, 'kept.backup');
    await writeFile(file, 'an older one');
    const refused = await runBackup(file);
    expect(refused).toMatchObject({
      exitCode: 4,
      stderr: `cloudlessctl: ${file} already exists; choose another file, or overwrite it with --force\n`,
      servers: [],
    });
    expect(await readFile(file, 'utf8')).toBe('an older one');
    expect(await runBackup(file, '--force')).toMatchObject({ exitCode: 0 });
    expect((await readFile(file)).length).toBe(155);
  });

  it.each<{
    name: string;
    toChunk: (whole: Buffer) => Buffer;
    failure?: ConnectError;
    exitCode: number;
    says: string;
  }>([
    {
      name: 'is interrupted by an error',
      toChunk: (whole) => whole.subarray(0, 100),
      failure: new ConnectError('the state changed so much', Code.Unavailable),
      exitCode: 5,
      says: 'the state changed so much',
    },
    {
      name: 'is incomplete',
      toChunk: (whole) => whole.subarray(0, 100),
      exitCode: 4,
      says: 'the backup is damaged: it is truncated',
    },
    {
      name: 'was altered',
      toChunk: (whole) => whole.fill('X', 60, 61),
      exitCode: 4,
      says: 'the backup is damaged: ',
    },
  ])(
    'keeps the existing file and deletes the partial file when the received backup $name',
    async ({ toChunk, failure, exitCode, says }) => {
      const file = join(directory, 'kept.backup');
      await writeFile(file, 'an older one');
      const transport = createCoordinator(
        [toChunk(Buffer.concat([...(await exportChunks())]))],
        failure,
      );
      const result = await runCli(['admin', 'backup', file, '--force'], { transport });
      expect(result).toMatchObject({ exitCode, stderr: expect.stringContaining(says) as string });
      expect(await readdir(directory)).toEqual(['kept.backup']);
      expect(await readFile(file, 'utf8')).toBe('an older one');
    },
  );

  it('exits with 1 and names the file when the file cannot be written', async () => {
    const { exitCode, stderr } = await runBackup(join(directory, 'none', 'today.backup'));
    expect(exitCode).toBe(1);
    expect(stderr).toMatch(/cannot write .*none\/today\.backup\.[0-9a-f]{8}\.partial: ENOENT/);
  });
});

describe('cloudlessctl admin verify and restore', () => {
  let file = '';
  beforeEach(async () => {
    file = join(directory, 'today.backup');
    await runBackup(file);
  });

  it('check a backup and create a data directory from the backup without a coordinator', async () => {
    const dataDir = join(directory, 'restored');
    const verified = await runCli(['admin', 'verify', file]);
    expect(verified).toMatchObject({
      exitCode: 0,
      stdout: `${file}: valid backup of revision 2 of cluster cluster-1, 2 entries, 155 bytes\n`,
      servers: [],
    });
    const { exitCode, stdout, servers } = await runCli([
      'admin',
      'restore',
      file,
      '--data-dir',
      dataDir,
    ]);
    expect({ exitCode, stdout, servers }).toEqual({
      exitCode: 0,
      stdout:
        `${dataDir}: restored revision 2 of cluster cluster-1, 2 entries, 155 bytes\n` +
        `start a coordinator with: cloudless-coordinator --data-dir ${dataDir}\n` +
        'nothing is started, stopped or changed until an operator accepts this state; when the nodes that still exist are connected, run: cloudlessctl admin accept-restored-state\n',
      servers: [],
    });
    const store = await openLmdbStateStore({ directory: dataDir, clock: new ManualClock() });
    const { entries, revision } = await store.range({ prefix: '' });
    expect(entries.map(({ key, modRevision }) => [key, modRevision])).toEqual([
      ['/a', 1n],
      ['/b', 2n],
    ]);
    expect(revision).toBe(2n);
    await store.close();
  });

  it.each([
    {
      name: 'altered',
      damage: (bytes: Buffer) => bytes.fill('X', 100, 101),
      says: 'the backup is damaged: ',
    },
    {
      name: 'cut off',
      damage: (bytes: Buffer) => bytes.subarray(0, 150),
      says: 'the backup is damaged: it is truncated after 150 bytes',
    },
    {
      name: 'not a backup',
      damage: () => Buffer.from('hello'),
      says: 'not a backup of a Cloudless cluster',
    },
  ])('reject a file that is $name, and create nothing', async ({ damage, says }) => {
    await writeFile(file, damage(await readFile(file)));
    for (const verb of [['verify'], ['restore', '--data-dir', join(directory, 'restored')]]) {
      const result = await runCli(['admin', ...verb, file]);
      expect(result).toMatchObject({
        exitCode: 4,
        stderr: expect.stringContaining(`cloudlessctl: ${file}: ${says}`) as string,
      });
    }
    expect(await readdir(directory)).toEqual(['today.backup']);
  });

  it('reject a data directory that is not empty, and leave it unchanged', async () => {
    const dataDir = join(directory, 'in-use');
    await mkdir(dataDir, { mode: 0o700 });
    await writeFile(join(dataDir, 'store.mdb'), 'what is there');
    const result = await runCli(['admin', 'restore', file, '--data-dir', dataDir]);
    expect(result).toMatchObject({
      exitCode: 4,
      stderr: expect.stringContaining('is not empty, it holds store.mdb') as string,
    });
    expect(await readFile(join(dataDir, 'store.mdb'), 'utf8')).toBe('what is there');
  });

  it('exit with 3 when the file does not exist, and with 2 for a directory, or without --data-dir and --etcd-endpoints', async () => {
    expect(await runCli(['admin', 'verify', join(directory, 'none')])).toMatchObject({
      exitCode: 3,
      stderr: `cloudlessctl: file ${join(directory, 'none')} does not exist\n`,
    });
    for (const verb of [['verify'], ['restore', '--data-dir', join(directory, 'restored')]])
      expect(await runCli(['admin', ...verb, directory])).toMatchObject({
        exitCode: 2,
        stderr: `cloudlessctl: ${directory} is a directory; give the file of a backup\n`,
      });
    const { exitCode, stderr } = await runCli(['admin', 'restore', file]);
    expect([exitCode, stderr]).toEqual([
      2,
      expect.stringContaining('name either --data-dir or --etcd-endpoints'),
    ]);
  });

  it('refuse etcd in plaintext on another machine without --etcd-insecure', async () => {
    const etcd = ['--etcd-endpoints', 'http://192.0.2.1:2379'];
    const restored = await runCli(['admin', 'restore', file, ...etcd]);
    const migrated = await runCli(['admin', 'migrate', directory, '--to', 'etcd', ...etcd]);
    for (const { exitCode, stderr } of [restored, migrated]) {
      expect(exitCode).toBe(2);
      expect(stderr).toContain(
        '--etcd-endpoints: http://192.0.2.1:2379 is in plaintext on another machine',
      );
    }
  });
});

describe('cloudlessctl admin accept-restored-state', () => {
  const createCoordinatorWithResult = (accepted: boolean): Transport =>
    createRouterTransport(({ service }) =>
      service(AdminService, {
        acceptRestoredState: () => ({ accepted, epoch: 1_006n, orderRevision: 77n }),
      }),
    );

  it.each([
    {
      when: 'the coordinator accepts the restored state',
      accepted: true,
      says: 'restored state: accepted in epoch 1006; agents receive orders again, and replicas that the state does not know are stopped\n',
    },
    {
      when: 'the coordinator has no state to accept',
      accepted: false,
      says: 'restored state: nothing to accept, no agent has seen a newer state (epoch 1006)\n',
    },
  ])('prints the result as text and as JSON when $when', async ({ accepted, says }) => {
    const { exitCode, stdout } = await runCli(['admin', 'accept-restored-state'], {
      transport: createCoordinatorWithResult(accepted),
    });
    expect({ exitCode, stdout }).toEqual({ exitCode: 0, stdout: says });
    const json = await runCli(['admin', 'accept-restored-state', '-o', 'json'], {
      transport: createCoordinatorWithResult(accepted),
    });
    expect(JSON.parse(json.stdout)).toEqual({ accepted, epoch: '1006', orderRevision: '77' });
  });
});

describe('cloudlessctl admin coordinators', () => {
  const known = (id: string, version: string) => ({
    id,
    address: `https://${id}.example:8080`,
    version,
    startedAt: timestampFromMs(NOW_MS - 3_600_000),
  });
  const coordinators = [known('c1', '0.1.0'), known('c2', '0.2.0')];
  const run = (info: MessageInitShape<typeof ServerInfoSchema>, ...words: readonly string[]) =>
    runCli(['admin', 'coordinators', ...words], {
      transport: createRouterTransport(({ service }) =>
        service(CoordinatorService, { getServerInfo: () => info }),
      ),
    });

  it('shows roles, versions and the age of each process', async () => {
    const leader = { coordinatorId: 'c2', address: 'https://c2.example:8080', epoch: 7n };
    const { exitCode, stdout } = await run({ coordinators, leader });
    expect(exitCode).toBe(0);
    expect(stdout).toBe(
      [
        'NAME   ROLE       EPOCH   ADDRESS                   VERSION   AGE',
        'c1     follower   -       https://c1.example:8080   0.1.0     60m',
        'c2     leader     7       https://c2.example:8080   0.2.0     60m',
        '',
      ].join('\n'),
    );
    const json = await run({ coordinators, leader }, '-o', 'json');
    expect(JSON.parse(json.stdout)).toMatchObject({
      coordinators: [
        { id: 'c1', role: 'follower' },
        { id: 'c2', role: 'leader', epoch: '7' },
      ],
    });
  });

  it('says that no coordinator leads', async () => {
    const { exitCode, stderr } = await run({ coordinators });
    expect({ exitCode, stderr }).toEqual({
      exitCode: 0,
      stderr: expect.stringContaining('no coordinator leads at the moment'),
    });
  });

  it('shows the only coordinator of a cluster with a store of its own', async () => {
    const { stdout } = await run({ coordinatorId: 'coordinator', version: '0.1.0', epoch: 3n });
    expect(stdout).toMatch(/^coordinator +leader +3 +http:\/\/127\.0\.0\.1:8080 +0\.1\.0 +/m);
  });
});

describe('cloudlessctl admin step-down', () => {
  it('ends the leadership that it has read, and prints the coordinator that leads now', async () => {
    const expectedEpochs: (bigint | undefined)[] = [];
    const transport = createRouterTransport(({ service }) => {
      service(CoordinatorService, {
        getServerInfo: () => ({ leader: { coordinatorId: 'c1', epoch: 7n } }),
      });
      service(AdminService, {
        stepDown: ({ expectedEpoch }) => {
          expectedEpochs.push(expectedEpoch);
          return { leaderId: 'c2', leaderAddress: 'https://10.0.0.2:8080', epoch: 8n };
        },
      });
    });
    const { exitCode, stdout } = await runCli(['admin', 'step-down'], { transport });
    expect({ exitCode, stdout }).toEqual({
      exitCode: 0,
      stdout: 'leadership: handed over to coordinator c2 at https://10.0.0.2:8080 (epoch 8)\n',
    });
    expect(expectedEpochs).toEqual([7n]);
  });
});
