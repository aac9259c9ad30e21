import { describe, expect, it } from '@jest/globals';
import fc from 'fast-check';
import {
  countRuns,
  put,
  readAll,
  withStore,
  write,
  type EngineTraits,
  type OpenStore,
} from './harness.js';

/** Keys in byte order of UTF-8. In the order of UTF-16 the last two keys would be swapped. */
const ORDERED = ['\0', 'a', 'a\0', 'a/', 'a/b', 'aa', 'b', 'z', 'é', '中', '\uffee', '😀'];

/** Declares the conformance tests of `StateStore.range`. */
export function describeRanges(open: OpenStore, traits: EngineTraits = {}): void {
  describe('ranges', () => {
    it('are in byte order of the UTF-8 keys', () =>
      withStore(open, async (store) => {
        for (const key of [...ORDERED].reverse()) await write(store, key);
        expect((await readAll(store)).map(([key]) => key)).toEqual(ORDERED);
      }));

    it('are in byte order for arbitrary keys and pages of 4 entries', () =>
      fc.assert(
        fc.asyncProperty(
          fc.uniqueArray(fc.string({ unit: 'binary', minLength: 1, maxLength: 6 }), {
            maxLength: 30,
          }),
          (keys) =>
            withStore(open, async (store) => {
              for (const key of keys) await write(store, key);
              const encoder = new TextEncoder();
              const ordered = [...keys].sort((a, b) =>
                compareBytes(encoder.encode(a), encoder.encode(b)),
              );
              expect((await readAll(store, '', 4)).map(([key]) => key)).toEqual(ordered);
            }),
        ),
        { numRuns: countRuns(25, traits) },
      ));

    it.each([
      { prefix: 'a', keys: ['a', 'a\0', 'a/', 'a/b', 'aa'] },
      { prefix: 'a/', keys: ['a/', 'a/b'] },
      { prefix: 'a/b/', keys: [] },
      { prefix: 'é', keys: ['é'] },
      { prefix: '😀', keys: ['😀'] },
      { prefix: 'zz', keys: [] },
      { prefix: '', keys: ORDERED },
    ])(
      'under "$prefix" contain exactly the keys with that prefix, for every page size',
      ({ prefix, keys }) =>
        withStore(open, async (store) => {
          for (const key of ORDERED) await write(store, key);
          for (const limit of [1, 2, 3, 1_000])
            expect((await readAll(store, prefix, limit)).map(([key]) => key)).toEqual(keys);
        }),
    );

    it('return `next` only when another page follows, and only keys that sort after `after`', () =>
      withStore(open, async (store) => {
        await store.txn([], [put('a'), put('b'), put('c')]);
        expect((await store.range({ prefix: '', limit: 2 })).next).toBe('b');
        expect(await store.range({ prefix: '', limit: 3 })).not.toHaveProperty('next');
        expect(
          (await store.range({ prefix: '', limit: 2, after: 'b' })).entries.map(({ key }) => key),
        ).toEqual(['c']);
        expect(
          (await store.range({ prefix: 'b', after: 'a' })).entries.map(({ key }) => key),
        ).toEqual(['b']);
        expect(await store.range({ prefix: 'b', after: 'x' })).toEqual({
          entries: [],
          revision: 1n,
        });
        expect((await store.range({ prefix: '', after: '' })).entries).toHaveLength(3);
      }));

    it('read the newest state without a revision, and the same state on all pages with one', () =>
      withStore(open, async (store) => {
        await store.txn([], [put('a', '1'), put('b', '1'), put('c', '1')]);
        const first = await store.range({ prefix: '', limit: 1 });
        await store.txn([], [{ delete: 'b' }, put('c', '2'), put('bb', '2')]);
        await write(store, 'c', '3');
        const rest = await store.range({
          prefix: '',
          after: first.next ?? '',
          revision: first.revision,
        });
        expect(rest.entries.map(({ key, modRevision }) => [key, modRevision])).toEqual([
          ['b', 1n],
          ['c', 1n],
        ]);
        expect(await readAll(store)).toEqual([
          ['a', '1'],
          ['bb', '2'],
          ['c', '3'],
        ]);
      }));

    it('are empty at revision 0', () =>
      withStore(open, async (store) => {
        await write(store, 'a');
        expect(await store.range({ prefix: '', revision: 0n })).toEqual({
          entries: [],
          revision: 0n,
        });
      }));

    it.each([
      { name: 'a limit of 0', request: { prefix: '', limit: 0 } },
      { name: 'a fractional limit', request: { prefix: '', limit: 1.5 } },
      { name: 'a future revision', request: { prefix: '', revision: 2n } },
      { name: 'a negative revision', request: { prefix: '', revision: -1n } },
      { name: 'a prefix with a lone surrogate', request: { prefix: '\udc00' } },
    ])('refuse $name as invalid', ({ request }) =>
      withStore(open, async (store) => {
        await write(store, 'a');
        await expect(store.range(request)).rejects.toMatchObject({ kind: 'invalid' });
      }),
    );

    it('read every retained revision and refuse compacted ones', () =>
      withStore(
        open,
        async (store) => {
          for (let round = 1; round <= 100; round += 1)
            await write(store, `k${round % 3}`, `${round}`);
          for (let revision = 90n; revision <= 100n; revision += 1n) {
            const expected = [revision, revision - 1n, revision - 2n]
              .map((round) => [`k${round % 3n}`, `${round}`])
              .sort();
            expect(await readAll(store, 'k', 2, revision)).toEqual(expected);
          }
          await expect(store.range({ prefix: '', revision: 50n })).rejects.toMatchObject({
            kind: 'compacted',
          });
          await expect(store.range({ prefix: '', revision: 0n })).rejects.toMatchObject({
            kind: 'compacted',
          });
        },
        10, // historyLimit: changes to retain
      ));
  });
}

function compareBytes(a: Uint8Array, b: Uint8Array): number {
  for (let index = 0; index < Math.min(a.length, b.length); index += 1) {
    const difference = (a[index] ?? 0) - (b[index] ?? 0);
    if (difference !== 0) return difference;
  }
  return a.length - b.length;
}
