import { mkdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { jest } from '@jest/globals';
import { errorKindOf, errorMessageOf } from '@cloudless/base';
import { ManualClock } from '@cloudless/base/testing';
import type { StateStore } from '@cloudless/state-store';
import { openLmdbStateStore } from '../index.js';
import { openTables } from '../engine/tables.js';
import { removeTemporaryDirectories, createTemporaryDirectory } from '../testing/index.js';

const PAGE_BYTES = 4_096;
const HISTORY_LIMIT = 40;

// The tests open hundreds of files, and each open reads the whole file.
jest.setTimeout(60_000);

const open = (directory: string): Promise<StateStore> =>
  openLmdbStateStore({
    directory,
    clock: new ManualClock(),
    historyLimit: HISTORY_LIMIT,
    sync: false,
  });

/** Returns entries and history of a store as text, without the entries of later writes. */
async function readContent(store: StateStore): Promise<string> {
  const { entries, revision } = await store.range({ prefix: '', limit: 10_000 });
  const history: unknown[] = [];
  for await (const batch of store.watch({
    prefix: '',
    after: revision - BigInt(HISTORY_LIMIT) + 5n,
  })) {
    history.push(batch);
    if (batch.revision === revision) break;
  }
  const toText = (_key: string, value: unknown): unknown =>
    typeof value === 'bigint' ? String(value) : value;
  return JSON.stringify([entries.filter(({ key }) => !key.startsWith('later')), history], toText);
}

/** Writes a data file with multi-page tables, multi-page values, leases and free pages. */
async function write(directory: string, rounds: number): Promise<void> {
  const store = await open(directory);
  const lease = await store.grantLease(1_000);
  for (let round = 0; round < rounds; round += 1) {
    const value = Buffer.from(`value ${round} `.repeat(1 + (round % 13) * 30));
    const leased = round % 9 === 0 ? [{ put: `leased-${round}`, value, lease }] : [];
    await store.txn([], [{ put: `key-${round % 70}`, value }, ...leased]);
  }
  await store.txn([], [{ put: 'big', value: Buffer.alloc(30_000, 'B') }, { delete: 'key-3' }]);
  await store.close();
}

/** A data file, and the same file after further writes. */
let olderFile = Buffer.alloc(0);
let newerFile = Buffer.alloc(0);
/** Content of `newerFile`. */
let intactContent = '';
beforeAll(async () => {
  const directory = await createTemporaryDirectory();
  await write(directory, 120);
  olderFile = await readFile(join(directory, 'store.mdb'));
  await write(directory, 60);
  newerFile = await readFile(join(directory, 'store.mdb'));
  const store = await open(directory);
  intactContent = await readContent(store);
  await store.close();
});
afterAll(removeTemporaryDirectories);

/**
 * Opens a copy of a data file, and writes to it when it opens.
 * @returns `refused`, or `intact` when the store has its full content before and after the writes.
 */
async function openDamaged(file: Buffer): Promise<string> {
  const directory = join(await createTemporaryDirectory(), 'data');
  await mkdir(directory, { mode: 0o700 });
  await writeFile(join(directory, 'store.mdb'), file);
  const store = await open(directory).catch((reason: unknown) => {
    if (
      errorKindOf(reason) !== 'precondition' ||
      !/data file is damaged|has store format/.test(errorMessageOf(reason))
    )
      throw reason;
  });
  if (store === undefined) return 'refused';
  const content = await readContent(store);
  const entriesOnly = (text: string): unknown => (JSON.parse(text) as readonly unknown[])[0];
  for (let round = 0; round < 4; round += 1)
    await store.txn([], [{ put: `later-${round}`, value: Buffer.alloc(6_000) }]);
  const later = await readContent(store);
  await store.close();
  await (await open(directory)).close();
  if (content !== intactContent) return 'changed content';
  return JSON.stringify(entriesOnly(later)) === JSON.stringify(entriesOnly(intactContent))
    ? 'intact'
    : 'broken by later writes';
}

/**
 * Damages `count` copies of the newer file, and counts the results of {@link openDamaged}.
 * @param damage - Damages one copy in place.
 */
async function countResults(
  count: number,
  damage: (file: Buffer, index: number) => void,
): Promise<Record<string, number>> {
  const results: Record<string, number> = {};
  for (let index = 0; index < count; index += 1) {
    const file = Buffer.from(newerFile);
    damage(file, index);
    const result = await openDamaged(file);
    results[result] = (results[result] ?? 0) + 1;
  }
  return results;
}

/**
 * Expected results. Only damage of unused bytes may stay undetected: in free pages, and in the
 * space between records.
 */
const REFUSED_OR_INTACT = {
  refused: expect.any(Number) as number,
  intact: expect.any(Number) as number,
};

describe('openLmdbStateStore', () => {
  it('refuses a data file with one changed bit, or reads its intact content', async () => {
    const step = 10_007; // coprime with the page size, so that all kinds of bytes are hit
    const count = Math.floor(newerFile.length / step);
    const results = await countResults(count, (file, index) => {
      const offset = index * step;
      file.writeUInt8(file.readUInt8(offset) ^ (1 << (index % 8)), offset);
    });
    expect(results).toEqual(REFUSED_OR_INTACT);
  });

  it('refuses a data file with one changed bit in a meta page, or reads its intact content', async () => {
    const results = await countResults(45, (file, index) => {
      const offset = (index % 2) * PAGE_BYTES + index * 4 - (index % 3) + 2;
      file.writeUInt8(file.readUInt8(offset) ^ (1 << (index % 7)), offset);
    });
    expect(results).toEqual(REFUSED_OR_INTACT);
  });

  it('refuses a data file with one outdated page (lost write), or reads its intact content', async () => {
    const results = await countResults(
      Math.floor(olderFile.length / PAGE_BYTES / 2),
      (file, index) => {
        olderFile.copy(
          file,
          2 * index * PAGE_BYTES,
          2 * index * PAGE_BYTES,
          (2 * index + 1) * PAGE_BYTES,
        );
      },
    );
    expect(results).toEqual(REFUSED_OR_INTACT);
  });

  it('refuses a data file with half a page (torn write), or reads its intact content', async () => {
    const results = await countResults(
      Math.floor(newerFile.length / PAGE_BYTES / 3),
      (file, index) => {
        file.fill(0, 3 * index * PAGE_BYTES + 512, (3 * index + 1) * PAGE_BYTES);
      },
    );
    expect(results).toEqual(REFUSED_OR_INTACT);
  });
});

it.each([
  {
    name: 'a missing entry',
    table: 'entries',
    problem: 'its entries are not those of the last commit',
  },
  {
    name: 'a missing history segment',
    table: 'history',
    problem: 'is missing from the history',
  },
  {
    name: 'a missing lease',
    table: 'leases',
    problem: 'its entries are not those of the last commit|an entry is on a lease',
  },
  {
    name: 'a missing key of a lease',
    table: 'leasedKeys',
    problem: 'an entry is on a lease that does not have its key',
  },
] as const)(
  'openLmdbStateStore refuses a data file with intact pages but $name',
  async ({ table, problem }) => {
    const directory = await createTemporaryDirectory();
    await write(directory, 30);
    const tables = await openTables(join(directory, 'store.mdb'), true);
    const [first] = [...tables[table].getKeys({ limit: 1 })];
    await tables[table].remove(first ?? Buffer.alloc(0));
    await tables.root.close();
    await expect(open(directory)).rejects.toMatchObject({
      kind: 'precondition',
      message: expect.stringMatching(
        new RegExp(
          `^data file is damaged: .*store.mdb: its records are inconsistent \\(.*(${problem}).*\\); restore a backup`,
        ),
      ) as string,
    });
  },
);
