import { mkdir, readdir, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { ManualClock } from '@cloudless/base/testing';
import { silentLog, type Log } from '@cloudless/base';
import type { StateStore } from '@cloudless/state-store';
import { openLmdbStateStore } from '../index.js';
import { removeTemporaryDirectories, createTemporaryDirectory } from '../testing/index.js';
import { DATA_FILE, DRAFT_FILES } from './create-data-file.js';

afterAll(removeTemporaryDirectories);

const KEY_COUNT = 300;
const value = Buffer.alloc(10_000, 'v');

/** Returns a log that appends its messages to `messages`. */
function recordingLog(messages: string[]): Log {
  const record = (message: string): void => void messages.push(message);
  return {
    ...silentLog,
    info: record,
    warn: record,
    error: record,
    child: () => recordingLog(messages),
  };
}

function open(directory: string, messages: string[] = []): Promise<StateStore> {
  return openLmdbStateStore({
    directory,
    clock: new ManualClock(),
    historyLimit: 20,
    log: recordingLog(messages),
  });
}

/** Writes 3 MB, and deletes all keys except each `keepEvery`th. */
async function fillAndDelete(directory: string, keepEvery: number): Promise<void> {
  const store = await open(directory);
  for (let key = 0; key < KEY_COUNT; key += 1) await store.txn([], [{ put: `key-${key}`, value }]);
  for (let key = 0; key < KEY_COUNT; key += 1)
    if (key % keepEvery !== 0) await store.txn([], [{ delete: `key-${key}` }]);
  for (let turn = 0; turn < 30; turn += 1)
    await store.txn([], [{ put: 'small', value: Buffer.from(`${turn}`) }]);
  await store.grantLease(1_000);
  await store.close();
}

/** Reads the revision, all entries and the retained history of a store. */
async function readContent(store: StateStore) {
  const revision = await store.revision();
  const { entries } = await store.range({ prefix: '' });
  const changes = [];
  for await (const batch of store.watch({ prefix: '', after: revision - 20n })) {
    changes.push(batch);
    if (batch.revision === revision) break;
  }
  return { revision, entries, changes };
}

const statDataFile = (directory: string) => stat(join(directory, DATA_FILE));

describe('openLmdbStateStore', () => {
  it('copies a data file that is mostly free into a smaller file with the same content', async () => {
    const directory = await createTemporaryDirectory();
    await fillAndDelete(directory, 50);
    const before = await statDataFile(directory);
    const messages: string[] = [];
    const compacted = await open(directory, messages);
    const after = await statDataFile(directory);
    expect(after.size).toBeLessThan(before.size / 4);
    expect(after.mode & 0o777).toBe(0o600);
    expect(messages).toEqual(['data file compacted']);
    const content = await readContent(compacted);
    expect([content.revision, content.entries.length]).toEqual([
      BigInt(KEY_COUNT + KEY_COUNT - 6 + 30),
      7,
    ]);
    expect(content.changes.map(({ revision }) => revision)).toEqual(
      Array.from({ length: 20 }, (_, index) => content.revision - 19n + BigInt(index)),
    );
    expect(await compacted.grantLease(1_000)).toBe('lease-2');
    await compacted.txn([], [{ put: 'new', value: Buffer.from('x') }]);
    await compacted.close();

    const again = await open(directory, messages);
    expect((await again.range({ prefix: '' })).entries.map(({ key }) => key)).toEqual([
      ...content.entries.map(({ key }) => key).slice(0, -1),
      'new',
      'small',
    ]);
    await again.close();
    expect(messages).toEqual(['data file compacted']);
    expect((await statDataFile(directory)).ino).toBe(after.ino);
  });

  it('does not copy a data file of which less than half is free', async () => {
    const directory = await createTemporaryDirectory();
    await fillAndDelete(directory, 1);
    const before = await statDataFile(directory);
    const messages: string[] = [];
    await (await open(directory, messages)).close();
    expect([(await statDataFile(directory)).ino, messages]).toEqual([before.ino, []]);
  });

  it('removes the files of an interrupted copy, and copies again', async () => {
    const directory = await createTemporaryDirectory();
    await fillAndDelete(directory, 50);
    for (const name of DRAFT_FILES) await writeFile(join(directory, name), 'half a copy');
    const messages: string[] = [];
    await (await open(directory, messages)).close();
    expect(messages).toEqual(['data file compacted']);
    expect(await readdir(directory)).not.toContain(DRAFT_FILES[0]);
  });

  it('keeps the data file when the copy fails', async () => {
    const directory = await createTemporaryDirectory();
    await fillAndDelete(directory, 50);
    const before = await statDataFile(directory);
    await mkdir(join(directory, DRAFT_FILES[0], 'in-the-way'), { recursive: true });
    const messages: string[] = [];
    const store = await open(directory, messages);
    expect(messages).toEqual(['data file not compacted']);
    expect((await readContent(store)).entries).toHaveLength(7);
    await store.close();
    expect((await statDataFile(directory)).ino).toBe(before.ino);
  });
});
