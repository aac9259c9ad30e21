import { join } from 'node:path';
import fc from 'fast-check';
import { HistoryWindow, type StorageWriter, type StoredEntry } from '@cloudless/state-store';
import {
  createTemporaryDirectory,
  removeTemporaryDirectories,
} from '../testing/temporary-directory.js';
import { LmdbStorage } from './lmdb-storage.js';
import { openTables } from './tables.js';

afterAll(removeTemporaryDirectories);

async function openStorage(): Promise<LmdbStorage> {
  const file = join(await createTemporaryDirectory(), 'store.mdb');
  const window = new HistoryWindow({ changes: 1_000, bytes: 1_000_000 });
  return new LmdbStorage(file, await openTables(file, true), window);
}

function put(writer: StorageWriter, key: string, modRevision: bigint): void {
  const value = Buffer.from(`value ${modRevision}`);
  writer.put({ key, value, modRevision, lease: undefined }, writer.get(key));
}

const readRevisions = (storage: LmdbStorage, keys: readonly string[]) =>
  storage.write((writer) => keys.map((key) => writer.get(key)?.modRevision));

/** What a group does with one key, or with several of consecutive numbers. */
const arbStep = fc.record({
  kind: fc.constantFrom('get', 'put', 'delete'),
  kindOfKey: fc.constantFrom('k', 'k\u00e9', '\uffff', '\u{1f511}'),
  first: fc.integer({ min: 0, max: 9 }),
  count: fc.integer({ min: 1, max: 3 }),
  /** The cache keeps no value of more than 1,024 bytes. */
  bytes: fc.constantFrom(8, 1_025),
  isExpected: fc.boolean(),
});
const arbGroup = fc.record({
  steps: fc.array(arbStep, { minLength: 1, maxLength: 12 }),
  isAborted: fc.oneof({ weight: 3, arbitrary: fc.constant(false) }, fc.constant(true)),
});
type Group = typeof arbGroup extends fc.Arbitrary<infer Value> ? Value : never;

describe('LmdbStorage', () => {
  it('reads in a group what a map holds after the same groups', async () => {
    const storage = await openStorage();
    let runs = 0;
    let revision = 0n;
    const runGroup = (
      writer: StorageWriter,
      model: Map<string, bigint>,
      { steps, isAborted }: Group,
    ): void => {
      for (const { kind, kindOfKey, first, count, bytes, isExpected } of steps) {
        for (let number = first; number < first + count; number += 1) {
          const key = `${runs}/${kindOfKey}/${String(number).padStart(6, '0')}`;
          const before = writer.get(key, isExpected);
          expect(before?.modRevision).toBe(model.get(key));
          if (kind === 'put') {
            revision += 1n;
            const value = Buffer.alloc(bytes);
            writer.put({ key, value, modRevision: revision, lease: undefined }, before);
            model.set(key, revision);
          } else if (kind === 'delete' && before !== undefined) {
            writer.delete(before);
            model.delete(key);
          }
        }
      }
      for (const isExpected of [true, false]) {
        const read = [...model.keys()].map(
          (key) => [key, writer.get(key, isExpected)?.modRevision] as const,
        );
        expect(new Map(read)).toEqual(model);
      }
      if (isAborted) throw new Error('the group fails');
    };
    await fc.assert(
      fc.asyncProperty(fc.array(arbGroup, { maxLength: 5 }), async (groups) => {
        runs += 1;
        let committed = new Map<string, bigint>();
        for (const group of groups) {
          const model = new Map(committed);
          const written = storage.write((writer) => runGroup(writer, model, group));
          if (group.isAborted) await expect(written).rejects.toThrow('the group fails');
          else await written.then(() => (committed = model));
        }
        const stored = [...storage.scan(`${runs}/`, undefined)];
        expect(new Map(stored.map(({ key, modRevision }) => [key, modRevision]))).toEqual(
          committed,
        );
      }),
      { numRuns: 60 },
    );
    await storage.close();
  });

  it('forgets the entries of a group that was aborted', async () => {
    const storage = await openStorage();
    await storage.write((writer) => {
      put(writer, 'kept', 1n);
      put(writer, 'deleted', 1n);
      writer.finish([], { revision: 1n, leaseCount: 0 });
    });
    const aborted = storage.write((writer) => {
      put(writer, 'kept', 2n);
      put(writer, 'new', 2n);
      const entry = writer.get('deleted');
      if (entry !== undefined) writer.delete(entry);
      expect(writer.get('kept')?.modRevision).toBe(2n);
      expect(writer.get('deleted')).toBeUndefined();
      throw new Error('the group fails');
    });
    await expect(aborted).rejects.toThrow('the group fails');
    expect(await readRevisions(storage, ['kept', 'deleted', 'new'])).toEqual([1n, 1n, undefined]);
    await storage.close();
  });

  it('finds the keys again that an aborted group had deleted', async () => {
    const storage = await openStorage();
    const keys = ['k1', 'k2', 'k3', 'k4'];
    await storage.write((writer) => {
      for (const key of keys) put(writer, key, 1n);
      writer.finish([], { revision: 1n, leaseCount: 0 });
    });
    const aborted = storage.write((writer) => {
      for (const key of keys) writer.delete(writer.get(key) as StoredEntry);
      // The second of two neighbours makes the writer read which keys are absent.
      expect(keys.map((key) => writer.get(key))).toEqual(keys.map(() => undefined));
      throw new Error('the group fails');
    });
    await expect(aborted).rejects.toThrow('the group fails');
    expect(await readRevisions(storage, keys)).toEqual([1n, 1n, 1n, 1n]);
    await storage.close();
  });

  it('reads entries that the same group wrote, also values too large for the cache', async () => {
    const storage = await openStorage();
    await storage.write((writer) => {
      const value = Buffer.alloc(5_000, 7);
      writer.put({ key: 'large', value, modRevision: 1n, lease: undefined }, undefined);
      expect(Buffer.from(writer.get('large')?.value ?? []).equals(value)).toBe(true);
      put(writer, 'k\u00e9y \u{1f511}', 1n);
      expect(writer.get('k\u00e9y \u{1f511}')?.modRevision).toBe(1n);
    });
    const read = storage.get('k\u00e9y \u{1f511}');
    expect([read?.key, Buffer.from(read?.value ?? []).toString()]).toEqual([
      'k\u00e9y \u{1f511}',
      'value 1',
    ]);
    await storage.close();
  });
});
