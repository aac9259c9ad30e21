import { copyFile, mkdir, open, readFile, readdir, rename, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { ManualClock } from '@cloudless/base/testing';
import type { StorageFault } from '@cloudless/state-store';
import { openLmdbStateStore } from '../index.js';
import { removeTemporaryDirectories, createTemporaryDirectory } from '../testing/index.js';

afterAll(removeTemporaryDirectories);

/** Opens a store in a new directory, with one acknowledged write, and records its faults. */
async function aStore() {
  const directory = join(await createTemporaryDirectory(), 'data');
  const clock = new ManualClock();
  const faults: StorageFault[] = [];
  const store = await openLmdbStateStore({
    directory,
    clock,
    checkIntervalMs: 1_000,
    onFault: (fault) => faults.push(fault),
  });
  await store.txn([], [{ put: 'before', value: new Uint8Array() }]);
  return { directory, file: join(directory, 'store.mdb'), clock, store, faults };
}

/** Ways to lose the files of a store, and the fault that each causes. */
const LOSSES: readonly {
  readonly name: string;
  readonly lost: StorageFault['lost'];
  readonly loseFiles: (directory: string, file: string) => Promise<unknown>;
}[] = [
  {
    name: 'its directory is deleted',
    lost: 'dataFile',
    loseFiles: (directory) => rm(directory, { recursive: true }),
  },
  {
    name: 'its directory is moved',
    lost: 'dataFile',
    loseFiles: (directory) => rename(directory, `${directory}-moved`),
  },
  {
    name: 'its directory is replaced by an empty one',
    lost: 'dataFile',
    loseFiles: async (directory) => {
      await rename(directory, `${directory}-moved`);
      await mkdir(directory, { mode: 0o700 });
    },
  },
  { name: 'its file is deleted', lost: 'dataFile', loseFiles: (_, file) => rm(file) },
  {
    name: 'its file is replaced by a copy',
    lost: 'dataFile',
    loseFiles: async (_, file) => {
      await copyFile(file, `${file}-copy`);
      await rename(`${file}-copy`, file);
    },
  },
  ...(process.platform === 'linux'
    ? [
        {
          name: 'its lock is deleted',
          lost: 'lock' as const,
          loseFiles: (directory: string) => rm(join(directory, 'lock-1')),
        },
      ]
    : []),
];

describe('a store of openLmdbStateStore', () => {
  it.each(LOSSES)(
    'acknowledges no write but serves reads after $name',
    async ({ lost, loseFiles }) => {
      const { directory, file, store, faults } = await aStore();
      await loseFiles(directory, file);
      await expect(
        store.txn([], [{ put: 'after', value: new Uint8Array() }]),
      ).rejects.toMatchObject({
        kind: 'unavailable',
        message: expect.stringContaining(file) as string,
      });
      expect(faults.map((fault) => fault.lost)).toEqual([lost]);
      expect((await store.range({ prefix: '' })).entries.map(({ key }) => key)).toEqual(['before']);
      await store.close();
    },
  );

  it.each(LOSSES)(
    'reports the loss at the next check without a write after $name',
    async ({ lost, loseFiles }) => {
      const { directory, file, store, clock, faults } = await aStore();
      await clock.advance(10_000);
      expect(faults).toEqual([]);
      await loseFiles(directory, file);
      await clock.advance(1_000);
      expect(faults.map((fault) => fault.lost)).toEqual([lost]);
      await store.close();
    },
  );

  describe('after its file is overwritten in place by an older copy', () => {
    async function anOverwrittenStore() {
      const { file, store, ...others } = await aStore();
      const older = await readFile(file);
      await store.txn([], [{ put: 'later', value: new Uint8Array() }]);
      const handle = await open(file, 'r+');
      await handle.write(older);
      await handle.close();
      return { file, store, ...others };
    }

    it('acknowledges no write, and has the content of the copy when it is opened again', async () => {
      const { directory, clock, file, store, faults } = await anOverwrittenStore();
      await expect(
        store.txn([], [{ put: 'after', value: new Uint8Array() }]),
      ).rejects.toMatchObject({
        kind: 'unavailable',
        message: expect.stringContaining(`another program has written to ${file}`) as string,
      });
      expect(faults.map((fault) => fault.lost)).toEqual(['content']);
      await store.close();
      const again = await openLmdbStateStore({ directory, clock });
      expect((await again.range({ prefix: '' })).entries.map(({ key }) => key)).toEqual(['before']);
      await again.close();
    });

    it('reports the loss at the next check without a write', async () => {
      const { clock, store, faults } = await anOverwrittenStore();
      await clock.advance(1_000);
      expect(faults.map((fault) => fault.lost)).toEqual(['content']);
      await store.close();
    });
  });

  it('has all acknowledged writes when opened again after its directory is moved away and back', async () => {
    const { directory, clock, store } = await aStore();
    await rename(directory, `${directory}-moved`);
    await clock.advance(1_000);
    await rename(`${directory}-moved`, directory);
    await expect(store.txn([], [{ put: 'after', value: new Uint8Array() }])).rejects.toMatchObject({
      kind: 'unavailable',
    });
    await store.close();
    const again = await openLmdbStateStore({ directory, clock });
    expect((await again.range({ prefix: '' })).entries.map(({ key }) => key)).toEqual(['before']);
    await again.close();
    expect(await readdir(directory)).toContain('store.mdb');
  });
});
