import { mkdir, mkdtemp, readFile, readdir, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Code, ConnectError, createRouterTransport } from '@connectrpc/connect';
import type { Transport } from '@connectrpc/connect';
import { AdminService } from '@cloudless/api';
import { ManualClock } from '@cloudless/base/testing';
import { createMemoryStateStore, exportSnapshot } from '@cloudless/state-store';
import { openLmdbStateStore } from '@cloudless/state-store-lmdb';
import { runCli } from '../testing/run-cli.js';

let directory = '';
beforeEach(async () => {
  directory = await mkdtemp(join(tmpdir(), 'cloudless-admin-'));
});
afterEach(() => rm(directory, { recursive: true, force: true }));

/** The chunks of a store with two entries at revision 2. */
async function chunksOf(): Promise<readonly Uint8Array[]> {
  const store = createMemoryStateStore({ clock: new ManualClock() });
  for (const key of ['/a', '/b'])
    await store.txn([], [{ put: key, value: Buffer.from(`the value of ${key}`) }]);
  const chunks: Uint8Array[] = [];
  for await (const chunk of exportSnapshot(store, { clusterId: 'cluster-1', schemaVersion: 1 }))
    chunks.push(chunk);
  return chunks;
}

/** A coordinator whose backup is `chunks`, and then perhaps fails. */
function serving(chunks: readonly Uint8Array[], failure?: ConnectError): Transport {
  return createRouterTransport(({ service }) =>
    service(AdminService, {
      backup: async function* () {
        for (const data of chunks) yield { data };
        if (failure !== undefined) throw failure;
      },
    }),
  );
}

const backUp = async (file: string, ...more: readonly string[]) =>
  runCli(['admin', 'backup', file, ...more], { transport: serving(await chunksOf()) });

describe('admin backup', () => {
  it('keeps what the coordinator sends in a file that only its owner may read', async () => {
    const file = join(directory, 'today.backup');
    const { exitCode, stdout } = await backUp(file);
    expect({ exitCode, stdout }).toEqual({
      exitCode: 0,
      stdout: `${file}: holds revision 2 of cluster cluster-1, 2 entries, 155 bytes\n`,
    });
    expect((await readFile(file)).equals(Buffer.concat([...(await chunksOf())]))).toBe(true);
    expect((await stat(file)).mode & 0o777).toBe(0o600);
    expect(await readdir(directory)).toEqual(['today.backup']);
  });

  it('prints what it kept for programs', async () => {
    const file = join(directory, 'today.backup');
    expect(JSON.parse((await backUp(file, '-o', 'json')).stdout)).toEqual({
      file,
      clusterId: 'cluster-1',
      schemaVersion: 1,
      revision: '2',
      entries: 2,
      bytes: 155,
      sha256: expect.stringMatching(/^[0-9a-f]{64}$/) as string,
    });
  });

  it('replaces a file only when it is told to, and asks no coordinator before', async () => {
    const file = join(directory, 'kept.backup');
    await writeFile(file, 'an older one');
    const refused = await backUp(file);
    expect(refused).toMatchObject({
      exitCode: 4,
      stderr: `cloudlessctl: ${file} is there already; name another file, or replace it with --force\n`,
      servers: [],
    });
    expect(await readFile(file, 'utf8')).toBe('an older one');
    expect(await backUp(file, '--force')).toMatchObject({ exitCode: 0 });
    expect((await readFile(file)).length).toBe(155);
  });

  it.each<{
    name: string;
    chunks: (whole: Buffer) => Buffer;
    failure?: ConnectError;
    exitCode: number;
    says: string;
  }>([
    {
      name: 'breaks off',
      chunks: (whole) => whole.subarray(0, 100),
      failure: new ConnectError('the state changed so much', Code.Unavailable),
      exitCode: 5,
      says: 'the state changed so much',
    },
    {
      name: 'ends early',
      chunks: (whole) => whole.subarray(0, 100),
      exitCode: 4,
      says: 'the backup is damaged: it is truncated',
    },
    {
      name: 'was altered on its way',
      chunks: (whole) => whole.fill('X', 60, 61),
      exitCode: 4,
      says: 'the backup is damaged: ',
    },
  ])(
    'leaves nothing, and an older file as it is, when what comes $name',
    async ({ chunks, failure, exitCode, says }) => {
      const file = join(directory, 'kept.backup');
      await writeFile(file, 'an older one');
      const transport = serving([chunks(Buffer.concat([...(await chunksOf())]))], failure);
      const result = await runCli(['admin', 'backup', file, '--force'], { transport });
      expect(result).toMatchObject({ exitCode, stderr: expect.stringContaining(says) as string });
      expect(await readdir(directory)).toEqual(['kept.backup']);
      expect(await readFile(file, 'utf8')).toBe('an older one');
    },
  );

  it('says where it cannot write', async () => {
    const { exitCode, stderr } = await backUp(join(directory, 'none', 'today.backup'));
    expect(exitCode).toBe(1);
    expect(stderr).toMatch(/none\/today\.backup\.[0-9a-f]{8}\.partial cannot be written: ENOENT/);
  });
});

describe('admin verify and restore', () => {
  let file = '';
  beforeEach(async () => {
    file = join(directory, 'today.backup');
    await backUp(file);
  });

  it('tell what a backup holds and make a data directory of it, without a coordinator', async () => {
    const dataDir = join(directory, 'restored');
    const verified = await runCli(['admin', 'verify', file]);
    expect(verified).toMatchObject({
      exitCode: 0,
      stdout: `${file}: is whole and holds revision 2 of cluster cluster-1, 2 entries, 155 bytes\n`,
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
        `${dataDir}: restored with revision 2 of cluster cluster-1, 2 entries, 155 bytes\n` +
        `start a coordinator on it: cloudless-coordinator --data-dir ${dataDir}\n`,
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
      name: 'something else',
      damage: () => Buffer.from('hello'),
      says: 'this is no backup of a Cloudless cluster',
    },
  ])('refuse a file that is $name, and make nothing', async ({ damage, says }) => {
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

  it('never touch a directory that holds something', async () => {
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

  it('say what is missing', async () => {
    expect(await runCli(['admin', 'verify', join(directory, 'none')])).toMatchObject({
      exitCode: 3,
      stderr: `cloudlessctl: there is no file ${join(directory, 'none')}\n`,
    });
    const { exitCode, stderr } = await runCli(['admin', 'restore', file]);
    expect([exitCode, stderr]).toEqual([
      2,
      expect.stringContaining("required option '--data-dir <dir>' not specified"),
    ]);
  });
});

describe('admin accept-restored-state', () => {
  const answering = (accepted: boolean): Transport =>
    createRouterTransport(({ service }) =>
      service(AdminService, {
        acceptRestoredState: () => ({ accepted, epoch: 1_006n, orderRevision: 77n }),
      }),
    );

  it.each([
    {
      accepted: true,
      says: 'restored state: accepted from epoch 1006 on; agents get orders again, and what the state does not know is stopped\n',
    },
    {
      accepted: false,
      says: 'restored state: there is none to accept, the state has not gone back in time (epoch 1006)\n',
    },
  ])('says what came of it: accepted $accepted', async ({ accepted, says }) => {
    const { exitCode, stdout } = await runCli(['admin', 'accept-restored-state'], {
      transport: answering(accepted),
    });
    expect({ exitCode, stdout }).toEqual({ exitCode: 0, stdout: says });
    const json = await runCli(['admin', 'accept-restored-state', '-o', 'json'], {
      transport: answering(accepted),
    });
    expect(JSON.parse(json.stdout)).toEqual({ accepted, epoch: '1006', orderRevision: '77' });
  });
});
