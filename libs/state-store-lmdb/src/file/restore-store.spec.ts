import { chmod, readdir, rm, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { ManualClock } from '@cloudless/base/testing';
import { createMemoryStateStore, exportSnapshot, type StateStore } from '@cloudless/state-store';
import { openLmdbStateStore, restoreLmdbStateStore } from '../index.js';
import {
  removeTemporaryDirectories,
  StoreChild,
  createTemporaryDirectory,
} from '../testing/index.js';

afterAll(removeTemporaryDirectories);

const open = (directory: string): Promise<StateStore> =>
  openLmdbStateStore({ directory, clock: new ManualClock() });

async function createSnapshot(): Promise<Buffer> {
  const store = createMemoryStateStore({ clock: new ManualClock() });
  for (let index = 0; index < 3_000; index += 1)
    await store.txn([], [{ put: `k${index}`, value: Buffer.from(`value ${index} `.repeat(50)) }]);
  const parts: Uint8Array[] = [];
  for await (const chunk of exportSnapshot(store, { clusterId: 'cluster-1', schemaVersion: 1 }))
    parts.push(chunk);
  return Buffer.concat(parts);
}

async function* toChunks(bytes: Uint8Array): AsyncGenerator<Uint8Array> {
  for (let from = 0; from < bytes.length; from += 65_536) yield bytes.subarray(from, from + 65_536);
}

describe('restoreLmdbStateStore', () => {
  it('creates a data directory with mode 0700 and a store that opens at the snapshot revision', async () => {
    const directory = join(await createTemporaryDirectory(), 'a', 'b');
    const summary = await restoreLmdbStateStore({
      directory,
      chunks: toChunks(await createSnapshot()),
    });
    expect(summary).toMatchObject({
      clusterId: 'cluster-1',
      schemaVersion: 1,
      revision: 3_000n,
      entries: 3_000,
    });
    expect((await readdir(directory)).sort()).toEqual(['holder', 'lock-1', 'store.mdb']);
    const modeOf = async (path: string): Promise<number> => (await stat(path)).mode & 0o777;
    expect([await modeOf(directory), await modeOf(join(directory, 'store.mdb'))]).toEqual([
      0o700, 0o600,
    ]);
    for (let round = 1n; round <= 2n; round += 1n) {
      const store = await open(directory);
      expect(await store.txn([], [{ put: 'more', value: new Uint8Array() }])).toEqual({
        revision: 3_000n + round,
      });
      await store.close();
    }
  });

  it.each([
    {
      name: 'truncated',
      damage: (bytes: Buffer) => bytes.subarray(0, bytes.length - 1),
      message: 'it is truncated after',
    },
    {
      name: 'altered',
      damage: (bytes: Buffer) => bytes.fill('X', 1_000_000, 1_000_001),
      message: 'its SHA-256 does not match',
    },
  ])(
    'creates no store from a snapshot that is $name, and accepts an intact snapshot afterwards',
    async ({ damage, message }) => {
      const directory = await createTemporaryDirectory();
      await expect(
        restoreLmdbStateStore({ directory, chunks: toChunks(damage(await createSnapshot())) }),
      ).rejects.toMatchObject({
        kind: 'precondition',
        message: expect.stringContaining(message) as string,
      });
      expect(await readdir(directory)).toEqual(['holder', 'lock-1']);
      await restoreLmdbStateStore({ directory, chunks: toChunks(await createSnapshot()) });
      await (await open(directory)).close();
    },
  );

  it('replaces the files that an interrupted restore left behind', async () => {
    const directory = await createTemporaryDirectory();
    for (const name of ['new-store.mdb', 'new-store.mdb-lock', 'holder'])
      await writeFile(join(directory, name), 'half');
    await restoreLmdbStateStore({ directory, chunks: toChunks(await createSnapshot()) });
    expect((await readdir(directory)).sort()).toEqual(['holder', 'lock-1', 'store.mdb']);
  });

  it('refuses a directory with other files', async () => {
    const directory = await createTemporaryDirectory();
    const store = await open(directory);
    await store.close();
    const attempt = restoreLmdbStateStore({ directory, chunks: toChunks(await createSnapshot()) });
    await expect(attempt).rejects.toMatchObject({
      kind: 'precondition',
      message:
        `data directory ${directory} is not empty, it holds store.mdb, store.mdb-lock: a restore needs an empty directory; ` +
        'choose another directory, or move the files away',
    });
    const again = await open(directory);
    expect(await again.revision()).toBe(0n);
    await again.close();
  });

  it('refuses a directory that others can access, a file, and a directory in use', async () => {
    const chunks = async function* (): AsyncGenerator<Uint8Array> {
      expect('the snapshot').toBe('not read');
      yield new Uint8Array();
    };
    const directory = await createTemporaryDirectory();
    await chmod(directory, 0o755);
    await expect(restoreLmdbStateStore({ directory, chunks: chunks() })).rejects.toThrow(
      `run: chmod 700 '${directory}'`,
    );
    const file = join(await createTemporaryDirectory(), 'file');
    await writeFile(file, '');
    await expect(restoreLmdbStateStore({ directory: file, chunks: chunks() })).rejects.toThrow(
      `${file} is not a directory`,
    );
    const held = await createTemporaryDirectory();
    const holder = StoreChild.start('hold', held);
    await holder.waitForLine('open');
    for (const name of ['store.mdb', 'store.mdb-lock']) await rm(join(held, name));
    await expect(
      restoreLmdbStateStore({ directory: held, chunks: chunks() }),
    ).rejects.toMatchObject({
      kind: 'unavailable',
      message: expect.stringContaining(`is in use by process ${holder.pid};`) as string,
    });
    await holder.kill();
  });
});
