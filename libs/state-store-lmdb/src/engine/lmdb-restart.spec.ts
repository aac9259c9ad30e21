import { readFile, rm, stat, truncate, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { definedFields } from '@cloudless/base';
import { ManualClock } from '@cloudless/base/testing';
import type { ChangeBatch, StateStore } from '@cloudless/state-store';
import { openLmdbStateStore } from '../index.js';
import {
  removeTemporaryDirectories,
  StoreChild,
  createTemporaryDirectory,
} from '../testing/index.js';
import { openTables } from './tables.js';

afterAll(removeTemporaryDirectories);

function put(key: string, value: string) {
  return { put: key, value: Buffer.from(value) };
}

async function readContent(
  store: StateStore,
  revision?: bigint,
): Promise<[string, string, bigint][]> {
  const { entries } = await store.range({
    prefix: '',
    ...definedFields({ revision }),
  });
  return entries.map(({ key, value, modRevision }) => [
    key,
    Buffer.from(value).toString(),
    modRevision,
  ]);
}

async function readBatches(
  store: StateStore,
  after: bigint,
  count: number,
): Promise<ChangeBatch[]> {
  const batches: ChangeBatch[] = [];
  for await (const batch of store.watch({ prefix: '', after })) {
    batches.push(batch);
    if (batches.length === count) break;
  }
  return batches;
}

describe('a store that is opened again', () => {
  it('has all entries, revisions and history', async () => {
    const directory = await createTemporaryDirectory();
    const first = await openLmdbStateStore({ directory, clock: new ManualClock() });
    await first.txn([], [put('a', '1'), put('b', '1')]);
    await Promise.all(
      Array.from({ length: 50 }, (_, index) => first.txn([], [put(`k${index}`, 'many')])),
    );
    await first.txn([], [put('a', '2'), { delete: 'b' }]);
    const [content, older, changes] = [
      await readContent(first),
      await readContent(first, 1n),
      await readBatches(first, 0n, 52),
    ];
    await first.close();

    const second = await openLmdbStateStore({ directory, clock: new ManualClock() });
    expect(await second.revision()).toBe(52n);
    expect(await readContent(second)).toEqual(content);
    expect(await readContent(second, 1n)).toEqual(older);
    expect(older).toEqual([
      ['a', '1', 1n],
      ['b', '1', 1n],
    ]);
    for (const after of [0, 1, 20, 51])
      expect(await readBatches(second, BigInt(after), 52 - after)).toEqual(changes.slice(after));
    expect(await second.txn([{ key: 'a', is: 52n }], [put('a', '3')])).toEqual({ revision: 53n });
    await second.close();
  });

  it('keeps its compacted revision, and compacts to its new historyLimit', async () => {
    const directory = await createTemporaryDirectory();
    const write = async (historyLimit: number, rounds: number): Promise<StateStore> => {
      const store = await openLmdbStateStore({ directory, clock: new ManualClock(), historyLimit });
      for (let round = 0; round < rounds; round += 1) await store.txn([], [put('a', `${round}`)]);
      return store;
    };
    await (await write(10, 100)).close();
    const reopened = await write(50, 30);
    await expect(readContent(reopened, 50n)).rejects.toMatchObject({ kind: 'compacted' });
    expect(await readBatches(reopened, 90n, 40)).toHaveLength(40);
    await reopened.close();
    const narrowed = await write(5, 1);
    await expect(readContent(narrowed, 120n)).rejects.toMatchObject({ kind: 'compacted' });
    expect(await readContent(narrowed, 126n)).toEqual([['a', '25', 126n]]);
    await narrowed.close();
  });

  it('gives each lease its full time again, and never reuses a lease id', async () => {
    const directory = await createTemporaryDirectory();
    const firstClock = new ManualClock();
    const first = await openLmdbStateStore({ directory, clock: firstClock });
    const [lease, ended] = [await first.grantLease(1_000), await first.grantLease(1_000)];
    await first.txn(
      [],
      [
        { ...put('held', '1'), lease },
        { ...put('gone', '1'), lease: ended },
      ],
    );
    await first.revokeLease(ended);
    await firstClock.advance(900);
    await first.close();

    const clock = new ManualClock();
    const second = await openLmdbStateStore({ directory, clock });
    await clock.advance(999);
    await second.keepAlive(lease);
    await expect(second.keepAlive(ended)).rejects.toMatchObject({ kind: 'notFound' });
    expect([lease, ended]).not.toContain(await second.grantLease(1_000_000));
    await clock.advance(1_000);
    const [batch] = await readBatches(second, 2n, 1);
    expect(batch).toEqual({
      revision: 3n,
      changes: [{ kind: 'delete', key: 'held', modRevision: 3n }],
    });
    await second.close();
  });

  it('has every acknowledged write and a gapless history after kill -9', async () => {
    const directory = await createTemporaryDirectory();
    for (let round = 1; round <= 2; round += 1) {
      const child = StoreChild.start('write', directory);
      await child.waitForLine('ack', 500);
      const acknowledged = new Map<string, { value: string; revision: bigint }>();
      for (const line of await child.kill()) {
        const [word, key = '', value = '', revision = ''] = line.split(' ');
        if (word === 'ack') acknowledged.set(key, { value, revision: BigInt(revision) });
      }
      const store = await openLmdbStateStore({ directory, clock: new ManualClock() });
      for (const [key, { value, revision }] of acknowledged) {
        const entry = await store.get(key);
        const lost = entry === undefined || entry.modRevision < revision;
        expect({ key, lost }).toEqual({ key, lost: false });
        if (entry?.modRevision === revision)
          expect(Buffer.from(entry.value).toString()).toBe(value);
      }
      const newest = await store.revision();
      const changes = await readBatches(store, 0n, Number(newest));
      expect(changes.at(-1)?.revision).toBe(newest);
      const keys = (await store.range({ prefix: '' })).entries;
      for (const { key, modRevision } of keys)
        await store.txn([{ key, is: modRevision }], [{ delete: key }]);
      await store.close();
    }
  });
});

describe('openLmdbStateStore', () => {
  it.each<{ name: string; damage: (file: string) => Promise<void> }>([
    { name: 'empty', damage: (file) => truncate(file, 0) },
    { name: 'truncated within the first page', damage: (file) => truncate(file, 100) },
    { name: 'truncated after the first page', damage: (file) => truncate(file, 4_096) },
    {
      name: 'truncated in the middle',
      damage: async (file) => truncate(file, Math.floor((await stat(file)).size / 2)),
    },
    {
      name: 'overwritten with garbage',
      damage: async (file) => writeFile(file, Buffer.alloc((await stat(file)).size, 0x5a)),
    },
    {
      name: 'overwritten with zeros after the first two pages',
      damage: (file) => overwrite(file, 2 * 4_096, 0),
    },
    {
      name: 'overwritten with garbage after the first two pages',
      damage: (file) => overwrite(file, 2 * 4_096, 0xa7),
    },
    { name: 'changed in one byte of each value', damage: changeValues },
  ])('refuses a data file that is $name and leaves it unchanged', async ({ damage }) => {
    const directory = await createTemporaryDirectory();
    const file = join(directory, 'store.mdb');
    const store = await openLmdbStateStore({ directory, clock: new ManualClock() });
    for (let round = 0; round < 300; round += 1)
      await store.txn([], [put(`k${round}`, 'value'.repeat(round * 4))]);
    await store.close();
    await damage(file);
    const damaged = await readFile(file);
    const attempt = openLmdbStateStore({ directory, clock: new ManualClock() });
    await expect(attempt).rejects.toMatchObject({
      kind: 'precondition',
      message: expect.stringContaining('data file is damaged') as string,
    });
    expect((await readFile(file)).equals(damaged)).toBe(true);
  });

  it('creates a store in a directory in which an earlier creation was interrupted', async () => {
    const directory = await createTemporaryDirectory();
    await writeFile(join(directory, 'new-store.mdb'), 'half a page');
    const store = await openLmdbStateStore({ directory, clock: new ManualClock() });
    expect(await store.revision()).toBe(0n);
    await store.close();
    await rm(directory, { recursive: true });
  });

  it('refuses a data file of another format at each attempt', async () => {
    const directory = await createTemporaryDirectory();
    await (await openLmdbStateStore({ directory, clock: new ManualClock() })).close();
    const tables = await openTables(join(directory, 'store.mdb'), true);
    await tables.meta.put(Buffer.from('format'), Buffer.from([0, 0, 0, 9]));
    await tables.root.close();
    for (let attempt = 0; attempt < 2; attempt += 1) {
      await expect(
        openLmdbStateStore({ directory, clock: new ManualClock() }),
      ).rejects.toMatchObject({
        kind: 'precondition',
        message: expect.stringMatching(
          /has store format 9, this program supports format 2/u,
        ) as string,
      });
    }
  });
});

/** Overwrites a file with one byte value, from an offset to the end. */
async function overwrite(file: string, from: number, byte: number): Promise<void> {
  const content = await readFile(file);
  await writeFile(file, content.fill(byte, from));
}

/** Changes one byte in each value that the test wrote. */
async function changeValues(file: string): Promise<void> {
  const content = await readFile(file, 'latin1');
  await writeFile(file, content.replaceAll('valuevalue', 'valueValue'), 'latin1');
}
