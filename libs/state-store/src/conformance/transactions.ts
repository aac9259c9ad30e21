import { describe, expect, it } from '@jest/globals';
import {
  MAX_KEY_BYTES,
  MAX_TXN_BYTES,
  MAX_TXN_OPERATIONS,
  type Compare,
  type Operation,
} from '../state-store.js';
import { bytes, put, readAll, text, withStore, write, type OpenStore } from './harness.js';

/** Declares the conformance tests of `StateStore.txn` and `StateStore.get`. */
export function describeTransactions(open: OpenStore): void {
  describe('transactions', () => {
    it('increase the revision by one, from 0, only when they change something', () =>
      withStore(open, async (store) => {
        expect(await store.revision()).toBe(0n);
        expect(await store.txn([], [put('a'), put('b')])).toEqual({ revision: 1n });
        expect(await store.txn([], [])).toEqual({ revision: 1n });
        expect(await store.txn([], [{ delete: 'absent' }])).toEqual({ revision: 1n });
        expect(await store.txn([], [put('a')])).toEqual({ revision: 2n });
        expect(await store.txn([], [{ delete: 'absent' }, { delete: 'a' }])).toEqual({
          revision: 3n,
        });
        expect(await store.revision()).toBe(3n);
      }));

    it('give all their writes one revision and leave other keys unchanged', () =>
      withStore(open, async (store) => {
        await store.txn([], [put('a'), put('b'), put('c')]);
        await store.txn([], [put('b', '2'), { delete: 'c' }, put('d')]);
        const { entries } = await store.range({ prefix: '' });
        expect(entries.map(({ key, modRevision }) => [key, modRevision])).toEqual([
          ['a', 1n],
          ['b', 2n],
          ['d', 2n],
        ]);
        expect(await store.get('c')).toBeUndefined();
        expect(await store.get('b')).toEqual({ key: 'b', value: bytes('2'), modRevision: 2n });
      }));

    it.each<{ name: string; compares: Compare[]; outcome: 'commit' | 'are refused' }>([
      {
        name: 'the revision of the last write',
        compares: [{ key: 'a', is: 2n }],
        outcome: 'commit',
      },
      { name: 'an older revision', compares: [{ key: 'a', is: 1n }], outcome: 'are refused' },
      { name: 'a newer revision', compares: [{ key: 'a', is: 3n }], outcome: 'are refused' },
      {
        name: 'revision 0 of an absent key',
        compares: [{ key: 'absent', is: 0n }],
        outcome: 'are refused',
      },
      {
        name: 'the absence of an existing key',
        compares: [{ key: 'a', is: 'absent' }],
        outcome: 'are refused',
      },
      {
        name: 'the absence of a key that never existed',
        compares: [{ key: 'absent', is: 'absent' }],
        outcome: 'commit',
      },
      {
        name: 'the absence of a deleted key',
        compares: [{ key: 'deleted', is: 'absent' }],
        outcome: 'commit',
      },
      {
        name: 'the old revision of a deleted key',
        compares: [{ key: 'deleted', is: 3n }],
        outcome: 'are refused',
      },
      // prettier-ignore
      { name: 'several revisions that are all right', compares: [{ key: 'a', is: 2n }, { key: 'b', is: 'absent' }], outcome: 'commit' },
      // prettier-ignore
      { name: 'several revisions of which the last is wrong', compares: [{ key: 'b', is: 'absent' }, { key: 'a', is: 1n }], outcome: 'are refused' },
    ])('$outcome when they compare with $name', ({ compares, outcome }) =>
      withStore(open, async (store) => {
        await write(store, 'a', '1');
        await write(store, 'a', '2');
        await write(store, 'deleted');
        await store.txn([], [{ delete: 'deleted' }]);
        const before = await readAll(store);
        const attempt = store.txn(compares, [put('new'), put('a', '3'), { delete: 'deleted' }]);
        if (outcome === 'commit') {
          expect(await attempt).toEqual({ revision: 5n });
          return;
        }
        await expect(attempt).rejects.toMatchObject({ kind: 'conflict' });
        expect(await readAll(store)).toEqual(before);
        expect(await store.revision()).toBe(4n);
      }),
    );

    it('report which compare failed and the revision of its key', () =>
      withStore(open, async (store) => {
        await write(store, 'a');
        await expect(store.txn([{ key: 'a', is: 'absent' }], [])).rejects.toMatchObject({
          scope: 'a',
          since: 'absent',
          changedAt: 1n,
        });
        await expect(store.txn([{ key: 'b', is: 7n }], [])).rejects.toMatchObject({
          scope: 'b',
          since: 7n,
          changedAt: 'absent',
        });
      }));

    it.each<{ name: string; compares?: Compare[]; operations: Operation[] }>([
      { name: 'an empty key to put', operations: [put('')] },
      { name: 'an empty key to delete', operations: [{ delete: '' }] },
      { name: 'an empty key to compare', compares: [{ key: '', is: 'absent' }], operations: [] },
      { name: 'a key written twice', operations: [put('a', '1'), put('b'), put('a', '2')] },
      { name: 'a key put and deleted', operations: [put('a'), { delete: 'a' }] },
      { name: 'a key deleted twice', operations: [{ delete: 'a' }, { delete: 'a' }] },
      { name: 'a key one byte too long', operations: [put('k'.repeat(MAX_KEY_BYTES + 1))] },
      {
        name: 'a key too long only in UTF-8',
        operations: [put('é'.repeat(MAX_KEY_BYTES / 2 + 1))],
      },
      { name: 'a lone surrogate in a key', operations: [put('a\ud800')] },
      {
        name: 'too many operations',
        operations: Array.from({ length: MAX_TXN_OPERATIONS + 1 }, (_, index) => put(`k${index}`)),
      },
      {
        name: 'too many compares',
        compares: Array.from({ length: MAX_TXN_OPERATIONS + 1 }, (_, index) => ({
          key: `k${index}`,
          is: 'absent',
        })),
        operations: [],
      },
      {
        name: 'too many bytes of keys and values',
        operations: [{ put: 'a', value: new Uint8Array(MAX_TXN_BYTES) }],
      },
    ])('refuse $name as invalid', ({ compares = [], operations }) =>
      withStore(open, async (store) => {
        await expect(store.txn(compares, operations)).rejects.toMatchObject({ kind: 'invalid' });
        expect(await store.revision()).toBe(0n);
        expect(await readAll(store)).toEqual([]);
      }),
    );

    it('are accepted with exactly the most compares, operations, key bytes and total bytes', () =>
      withStore(open, async (store) => {
        const keys = Array.from({ length: MAX_TXN_OPERATIONS }, (_, index) => `key-${index}`);
        const compares = keys.map((key): Compare => ({ key, is: 'absent' }));
        await store.txn(compares, keys.map((key) => put(key))); // prettier-ignore
        expect(await readAll(store)).toHaveLength(MAX_TXN_OPERATIONS);
        const longest = `${'é'.repeat(MAX_KEY_BYTES / 2 - 1)}zz`;
        const value = Uint8Array.from(
          { length: MAX_TXN_BYTES - MAX_KEY_BYTES },
          (_, index) => index % 251,
        );
        await store.txn([], [{ put: longest, value }]);
        const found = await store.get(longest);
        expect(found?.value.length).toBe(value.length);
        expect(found?.value.every((byte, index) => byte === value[index])).toBe(true);
      }));

    it('keep any bytes, also those that are not text, and empty values', () =>
      withStore(open, async (store) => {
        const value = Uint8Array.from([0, 255, 128, 10]);
        // prettier-ignore
        await store.txn([], [{ put: 'a', value }, { put: 'empty', value: new Uint8Array() }]);
        expect([...((await store.get('a'))?.value ?? [])]).toEqual([0, 255, 128, 10]);
        expect((await store.get('empty'))?.value).toHaveLength(0);
      }));

    it('are visible to every read after their acknowledgement', () =>
      withStore(open, async (store) => {
        for (let round = 1; round <= 20; round += 1) {
          await store.get('a');
          const revision = await write(store, 'a', `${round}`);
          expect([text((await store.get('a'))?.value), await store.revision()]).toEqual([
            `${round}`,
            revision,
          ]);
        }
      }));
  });

  describe('get', () => {
    it('refuses an empty key as invalid', () =>
      withStore(open, (store) => expect(store.get('')).rejects.toMatchObject({ kind: 'invalid' })));
  });
}
