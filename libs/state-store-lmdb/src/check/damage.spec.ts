import { mkdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { jest } from '@jest/globals';
import { errorKindOf, errorMessageOf } from '@cloudless/base';
import { ManualClock } from '@cloudless/base/testing';
import type { StateStore } from '@cloudless/state-store';
import { openLmdbStateStore } from '../index.js';
import { openTables } from '../engine/tables.js';
import { removeTemporaryDirectories, createTemporaryDirectory } from '../testing/index.js';

const PAGE = 4_096;
const HISTORY = 40;

// The tests open hundreds of files, and each open reads the whole file.
jest.setTimeout(60_000);

const open = (directory: string): Promise<StateStore> =>
  openLmdbStateStore({ directory, clock: new ManualClock(), historyLimit: HISTORY, sync: false });

/** The whole content of a store as text. */
async function readContent(store: StateStore): Promise<string> {
  const { entries, revision } = await store.range({ prefix: '', limit: 10_000 });
  const history: unknown[] = [];
  for await (const batch of store.watch({ prefix: '', after: revision - BigInt(HISTORY) + 5n })) {
    history.push(batch);
    if (batch.revision === revision) break;
  }
  const toText = (_key: string, value: unknown): unknown =>
    typeof value === 'bigint' ? String(value) : value;
  return JSON.stringify([entries.filter(({ key }) => !key.startsWith('later')), history], toText);
}

/** Writes a file with multi-page tables, multi-page values, leases and free pages. */
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

let older = Buffer.alloc(0);
let newer = Buffer.alloc(0);
let whole = '';
beforeAll(async () => {
  const directory = await createTemporaryDirectory();
  await write(directory, 120);
  older = await readFile(join(directory, 'store.mdb'));
  await write(directory, 60);
  newer = await readFile(join(directory, 'store.mdb'));
  const store = await open(directory);
  whole = await readContent(store);
  await store.close();
});
afterAll(removeTemporaryDirectories);

/** @returns `refused`, or `whole` when the file has its full content, also after some writes. */
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
  const found = await readContent(store);
  const entriesOnly = (text: string): unknown => (JSON.parse(text) as readonly unknown[])[0];
  for (let round = 0; round < 4; round += 1)
    await store.txn([], [{ put: `later-${round}`, value: Buffer.alloc(6_000) }]);
  const later = await readContent(store);
  await store.close();
  await (await open(directory)).close();
  if (found !== whole) return 'other than it was';
  return JSON.stringify(entriesOnly(later)) === JSON.stringify(entriesOnly(whole))
    ? 'whole'
    : 'broken by later writes';
}

async function countVerdicts(
  count: number,
  damage: (file: Buffer, index: number) => void,
): Promise<Record<string, number>> {
  const verdicts: Record<string, number> = {};
  for (let index = 0; index < count; index += 1) {
    const file = Buffer.from(newer);
    damage(file, index);
    const verdict = await openDamaged(file);
    verdicts[verdict] = (verdicts[verdict] ?? 0) + 1;
  }
  return verdicts;
}

/** Only damage of unused bytes may go undetected: free pages, and the space between records. */
const refusedOrWhole = {
  refused: expect.any(Number) as number,
  whole: expect.any(Number) as number,
};

describe('openLmdbStateStore: a damaged data file is refused or reads correctly', () => {
  it('with one bit changed anywhere', async () => {
    const step = 10_007; // coprime with the page size, so that all kinds of bytes are hit
    const places = Math.floor(newer.length / step);
    const verdicts = await countVerdicts(places, (file, index) => {
      const place = index * step;
      file.writeUInt8(file.readUInt8(place) ^ (1 << (index % 8)), place);
    });
    expect(verdicts).toEqual(refusedOrWhole);
  });

  it('with one bit of its meta pages changed', async () => {
    const verdicts = await countVerdicts(45, (file, index) => {
      const place = (index % 2) * PAGE + index * 4 - (index % 3) + 2;
      file.writeUInt8(file.readUInt8(place) ^ (1 << (index % 7)), place);
    });
    expect(verdicts).toEqual(refusedOrWhole);
  });

  it('with a page in an older state (lost write)', async () => {
    const verdicts = await countVerdicts(Math.floor(older.length / PAGE / 2), (file, index) => {
      older.copy(file, 2 * index * PAGE, 2 * index * PAGE, (2 * index + 1) * PAGE);
    });
    expect(verdicts).toEqual(refusedOrWhole);
  });

  it('with a partly written page (torn write)', async () => {
    const verdicts = await countVerdicts(Math.floor(newer.length / PAGE / 3), (file, index) => {
      file.fill(0, 3 * index * PAGE + 512, (3 * index + 1) * PAGE);
    });
    expect(verdicts).toEqual(refusedOrWhole);
  });
});

it.each([
  {
    name: 'a missing entry',
    change: 'entries',
    says: 'its entries are not those of the last commit',
  },
  {
    name: 'a missing history segment',
    change: 'history',
    says: 'is missing from the history',
  },
  {
    name: 'a missing lease',
    change: 'leases',
    says: 'its entries are not those of the last commit|an entry is on a lease',
  },
  {
    name: 'a missing key of a lease',
    change: 'leasedKeys',
    says: 'an entry is on a lease that does not have its key',
  },
] as const)(
  'openLmdbStateStore refuses a data file with intact pages but $name',
  async ({ change, says }) => {
    const directory = await createTemporaryDirectory();
    await write(directory, 30);
    const tables = await openTables(join(directory, 'store.mdb'), true);
    const [first] = [...tables[change].getKeys({ limit: 1 })];
    await tables[change].remove(first ?? Buffer.alloc(0));
    await tables.root.close();
    await expect(open(directory)).rejects.toMatchObject({
      kind: 'precondition',
      message: expect.stringMatching(
        new RegExp(
          `^data file is damaged: .*store.mdb: its records are inconsistent \\(.*(${says}).*\\); restore a backup`,
        ),
      ) as string,
    });
  },
);
