import { describe, expect, it } from '@jest/globals';
import { ManualClock } from '@cloudless/base/testing';
import { exportSnapshot } from '../snapshot/export-snapshot.js';
import { SNAPSHOT_FORMAT } from '../snapshot/format.js';
import type { StateStore, StoreEntry } from '../state-store.js';
import {
  AMPLE_HISTORY,
  bytes,
  put,
  startWatch,
  readBatches,
  withStore,
  write,
  type OpenStore,
  type OpenStoreOptions,
} from './harness.js';

/** Opens a store that is restored from a snapshot. The suite closes the store. */
export type RestoreStore = (
  chunks: AsyncIterable<Uint8Array>,
  options: OpenStoreOptions,
) => Promise<StateStore>;

const CLUSTER = { clusterId: 'cluster-1', schemaVersion: 1 };

/**
 * Declares the tests of export and restore. Every engine that can restore must pass them.
 * @param name - Name of the engine, for the titles.
 * @param open - Opens a new, empty store, as for `describeStateStore`.
 * @param restore - Opens a store that is restored from a snapshot.
 */
export function describeSnapshots(name: string, open: OpenStore, restore: RestoreStore): void {
  /** Runs `test` with a copy of the store, restored from a snapshot. */
  const withCopy = (store: StateStore, test: (copy: StateStore) => Promise<void>): Promise<void> =>
    withStore(
      () =>
        restore(exportSnapshot(store, CLUSTER), {
          clock: new ManualClock(),
          historyLimit: AMPLE_HISTORY,
        }),
      test,
    );

  describe(`${name} state store restored from a snapshot of format ${SNAPSHOT_FORMAT}`, () => {
    it('has every entry with its revision and continues at the snapshot revision', () =>
      withStore(open, async (store) => {
        await store.txn([], [put('a', '1'), put('b', '1'), put('gone')]);
        await write(store, 'ü/€/𝄞', '');
        const { revision } = await store.txn([], [put('b', '2'), { delete: 'gone' }]);
        await withCopy(store, async (copy) => {
          expect(await readAllEntries(copy)).toEqual(await readAllEntries(store));
          expect(await copy.revision()).toBe(revision);
          const { revision: next } = await copy.txn([{ key: 'b', is: revision }], [put('b', '3')]);
          expect(next).toBe(revision + 1n);
          await expect(copy.txn([{ key: 'a', is: revision }], [put('a')])).rejects.toMatchObject({
            kind: 'conflict',
          });
        });
      }));

    it('has no history before the snapshot revision and full history after it', () =>
      withStore(open, async (store) => {
        await write(store, 'a', '1');
        const revision = await write(store, 'a', '2');
        await withCopy(store, async (copy) => {
          await expect(copy.range({ prefix: '', revision: 1n })).rejects.toMatchObject({
            kind: 'compacted',
          });
          await expect(startWatch(copy, '', 1n).next()).rejects.toMatchObject({
            kind: 'compacted',
          });
          await write(copy, 'a', '3');
          expect(
            (await copy.range({ prefix: '', revision })).entries.map(
              ({ modRevision }) => modRevision,
            ),
          ).toEqual([revision]);
          expect(await readBatches(startWatch(copy, '', revision), 1)).toEqual([
            [revision + 1n, 'a=3'],
          ]);
        });
      }));

    it('has the state of one revision when the store is written during the export', () =>
      withStore(open, async (store) => {
        const keys = Array.from(
          { length: 1_200 },
          (_, index) => `k${String(index).padStart(4, '0')}`,
        );
        for (let from = 0; from < keys.length; from += 100)
          await store.txn(
            [],
            keys.slice(from, from + 100).map((key) => put(key)),
          );
        const before = await readAllEntries(store);
        let reads = 0;
        const busyStore: Pick<StateStore, 'range'> = {
          range: async (request) => {
            const page = await store.range(request);
            reads += 1;
            await store.txn(
              [],
              [
                put('k1199', `${reads}`),
                { delete: keys[1_100 + reads] ?? '' },
                put(`k0000/${reads}`),
              ],
            );
            return page;
          },
        };
        const restored = restore(exportSnapshot(busyStore, CLUSTER), {
          clock: new ManualClock(),
          historyLimit: AMPLE_HISTORY,
        });
        await withStore(
          () => restored,
          async (copy) => expect(await readAllEntries(copy)).toEqual(before),
        );
        expect(reads).toBeGreaterThan(3);
      }));

    it('omits entries on a lease', () =>
      withStore(open, async (store) => {
        const lease = await store.grantLease(1_000);
        await store.txn([], [put('stays'), { put: 'held', value: bytes('1'), lease }]);
        expect((await store.get('held'))?.lease).toBe(lease);
        await withCopy(store, async (copy) => {
          expect((await readAllEntries(copy)).map(({ key }) => key)).toEqual(['stays']);
          await expect(copy.keepAlive(lease)).rejects.toMatchObject({ kind: 'notFound' });
        });
      }));

    it('is empty and begins at revision 1 when the exported store was empty', () =>
      withStore(open, (store) =>
        withCopy(store, async (copy) => {
          expect(await copy.revision()).toBe(0n);
          expect(await write(copy, 'a')).toBe(1n);
        }),
      ));

    it('has unchanged values from 0 bytes to almost 1 MiB', () =>
      withStore(open, async (store) => {
        for (const size of [0, 1, 1_000, 131_072, 500_000, 1_048_000])
          await store.txn([], [{ put: `v/${size}`, value: new Uint8Array(size).fill(size % 251) }]);
        await withCopy(store, async (copy) =>
          expect(await readAllEntries(copy)).toEqual(await readAllEntries(store)),
        );
      }));
  });
}

async function readAllEntries(store: StateStore): Promise<readonly StoreEntry[]> {
  const { entries } = await store.range({ prefix: '', limit: 1_000_000 });
  return entries.map((entry) => ({ ...entry, value: new Uint8Array(entry.value) }));
}
