import { describe, expect, it } from '@jest/globals';
import { MAX_TXN_OPERATIONS } from '../state-store.js';
import {
  put,
  putLeased,
  readAll,
  startWatch,
  readBatches,
  withStore,
  write,
  type OpenStore,
} from './harness.js';

/** Declares the conformance tests of leases, except for the time when they end. */
export function describeLeases(open: OpenStore): void {
  describe('leases', () => {
    it('end at once when they are revoked, and leave other leases unchanged', () =>
      withStore(open, async (store) => {
        const [first, second] = [await store.grantLease(1_000), await store.grantLease(1_000)];
        expect(second).not.toBe(first);
        await store.txn([], [putLeased('a', first), putLeased('b', second)]);
        await store.revokeLease(first);
        await store.revokeLease(first);
        expect(await readAll(store)).toEqual([['b', 'b']]);
        expect(await store.revision()).toBe(2n);
        await expect(store.keepAlive(first)).rejects.toMatchObject({ kind: 'notFound' });
        await store.keepAlive(second);
      }));

    it.each([
      { name: 'a text', unknown: 'nobody' },
      { name: 'empty', unknown: '' },
      { name: 'longer than any key', unknown: 'x'.repeat(10_000) },
      { name: 'a lone surrogate', unknown: '\ud800' },
      { name: 'a NUL character', unknown: '\0' },
    ])('are refused, and nothing is written, when the id is unknown and is $name', ({ unknown }) =>
      withStore(open, async (store) => {
        await expect(store.txn([], [put('a'), putLeased('b', unknown)])).rejects.toMatchObject({
          kind: 'notFound',
        });
        await expect(store.keepAlive(unknown)).rejects.toMatchObject({ kind: 'notFound' });
        await store.revokeLease(unknown);
        expect(await readAll(store)).toEqual([]);
        expect(await write(store, 'a')).toBe(1n);
      }),
    );

    it('hold a key until it is put with another lease, put without a lease, or deleted', () =>
      withStore(open, async (store) => {
        const [first, second] = [await store.grantLease(1_000), await store.grantLease(2_000)];
        const keys = ['moved', 'freed', 'deleted', 'kept', 'back'];
        await store.txn([], keys.map((key) => putLeased(key, first))); // prettier-ignore
        await store.txn(
          [],
          [
            putLeased('moved', second),
            put('freed'),
            { delete: 'deleted' },
            putLeased('kept', first, '2'),
            put('back'),
          ],
        );
        await store.txn([], [putLeased('back', first), put('deleted')]);
        await store.revokeLease(first);
        expect((await readAll(store)).map(([key]) => key)).toEqual(['deleted', 'freed', 'moved']);
        await store.revokeLease(second);
        expect((await readAll(store)).map(([key]) => key)).toEqual(['deleted', 'freed']);
      }));

    it('delete 300 keys in one transaction when they are revoked', () =>
      withStore(open, async (store) => {
        const lease = await store.grantLease(1_000);
        for (let batch = 0; batch < 3; batch += 1) {
          await store.txn(
            [],
            Array.from({ length: MAX_TXN_OPERATIONS }, (_, index) =>
              putLeased(`${batch}/${index}`, lease),
            ),
          );
        }
        await store.revokeLease(lease);
        const [ended] = await readBatches(startWatch(store, '', 3n), 1);
        expect(ended).toHaveLength(1 + 3 * MAX_TXN_OPERATIONS);
        expect(await store.revision()).toBe(4n);
      }));

    it.each([0, -1, Number.NaN, Number.POSITIVE_INFINITY])(
      'are refused as invalid with a TTL of %d ms',
      (ttlMs) =>
        withStore(open, (store) =>
          expect(store.grantLease(ttlMs)).rejects.toMatchObject({ kind: 'invalid' }),
        ),
    );

    it('keep their keys in ranges at older revisions after they are revoked', () =>
      withStore(open, async (store) => {
        const lease = await store.grantLease(1_000);
        await store.txn([], [putLeased('a', lease)]);
        await store.revokeLease(lease);
        expect(await readAll(store, '', 10, 1n)).toEqual([['a', 'a']]);
        expect(await readAll(store)).toEqual([]);
      }));
  });
}
