import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { ManualClock } from '@cloudless/base/testing';
import type { Revision, StateStore } from '@cloudless/state-store';
import { openLmdbStateStore, type EntryConsumer } from '../index.js';
import { createTemporaryDirectory, removeTemporaryDirectories } from '../testing/index.js';

afterAll(removeTemporaryDirectories);

/** Keeps what it receives. */
class RecordingConsumer implements EntryConsumer {
  readonly entries: { key: string; value: string; modRevision: Revision }[] = [];
  revision: Revision | undefined;

  add(key: string, value: Uint8Array, modRevision: Revision): void {
    this.entries.push({ key, value: Buffer.from(value).toString('latin1'), modRevision });
  }

  end(revision: Revision): void {
    this.revision = revision;
  }
}

const open = (directory: string, entryConsumer?: EntryConsumer): Promise<StateStore> =>
  openLmdbStateStore({
    ...{ directory, clock: new ManualClock(), historyLimit: 10, sync: false },
    ...(entryConsumer === undefined ? {} : { entryConsumer }),
  });

/** Writes short and long values, also on a lease, and deletes some of them. */
async function fill(store: StateStore, keys: number): Promise<void> {
  const lease = await store.grantLease(1_000);
  for (let index = 0; index < keys; index += 1) {
    const value = Buffer.from(`${index} `.repeat(1 + (index % 7) ** 4));
    await store.txn([], [{ put: `é/${index}`, value, ...(index % 5 === 0 ? { lease } : {}) }]);
    if (index % 3 === 0) await store.txn([], [{ delete: `é/${index}` }]);
  }
}

async function readEntries(store: StateStore): Promise<unknown> {
  const { entries } = await store.range({ prefix: '' });
  return entries.map(({ key, value, modRevision }) => ({
    key,
    value: Buffer.from(value).toString('latin1'),
    modRevision,
  }));
}

it.each([
  { name: 'an empty store', keys: 0, deletesMost: false },
  { name: 'a store of many pages', keys: 200, deletesMost: false },
  { name: 'a store that is compacted when it is opened', keys: 400, deletesMost: true },
])('gives the reader each entry of $name once, and the revision', async ({ keys, deletesMost }) => {
  const directory = join(await createTemporaryDirectory(), 'data');
  const written = await open(directory);
  await fill(written, keys);
  if (deletesMost)
    for (let index = 0; index < keys - 20; index += 1)
      await written.txn([], [{ delete: `é/${index}` }]);
  await written.close();
  const reader = new RecordingConsumer();
  const store = await open(directory, reader);
  expect(reader.entries).toEqual(await readEntries(store));
  expect(reader.revision).toBe(await store.revision());
  await store.close();
});

it('never ends the entries of a refused data file', async () => {
  const directory = join(await createTemporaryDirectory(), 'data');
  const written = await open(directory);
  await fill(written, 50);
  await written.close();
  const file = join(directory, 'store.mdb');
  const content = await readFile(file);
  // Also the copies in the history and in free pages.
  for (let at = content.indexOf('47 47 '); at >= 0; at = content.indexOf('47 47 ', at))
    content.write('x', at);
  await writeFile(file, content);
  const reader = new RecordingConsumer();
  await expect(open(directory, reader)).rejects.toThrow('data file is damaged');
  expect(reader.revision).toBeUndefined();
});
