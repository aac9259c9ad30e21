import { join } from 'node:path';
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

describe('LmdbStorage', () => {
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
