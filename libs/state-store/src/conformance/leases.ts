import { describe, expect, it } from '@jest/globals';
import { MAX_TXN_OPERATIONS, type LeaseId, type Operation } from '../state-store.js';
import {
  bytes,
  put,
  readAll,
  startWatch,
  readBatches,
  withStore,
  write,
  type OpenStore,
} from './harness.js';

/** Returns a put of a key on a lease. */
function putLeased(key: string, lease: LeaseId, value = key): Operation {
  return { put: key, value: bytes(value), lease };
}

/** Declares the conformance tests of leases. */
export function describeLeases(open: OpenStore): void {
  describe('leases', () => {
    it('delete their keys in one transaction, visible to watches, when they expire', () =>
      withStore(open, async (store, clock) => {
        const lease = await store.grantLease(1_000);
        await store.txn([], [putLeased('b', lease), put('c'), putLeased('a', lease)]);
        await store.txn([], [putLeased('d', lease)]);
        const watch = startWatch(store, '', 2n);
        await clock.advance(999);
        await write(store, 'c', '2');
        expect(await readBatches(watch, 1)).toEqual([[3n, 'c=2']]);
        await clock.advance(1);
        expect(await readBatches(watch, 1)).toEqual([[4n, '-a', '-b', '-d']]);
        expect(await readAll(store)).toEqual([['c', '2']]);
        expect(await store.revision()).toBe(4n);
      }));

    it('keep their keys as long as they are renewed in time', () =>
      withStore(open, async (store, clock) => {
        const lease = await store.grantLease(1_000);
        await store.txn([], [putLeased('a', lease)]);
        for (let round = 0; round < 5; round += 1) {
          await clock.advance(900);
          await store.keepAlive(lease);
        }
        await clock.advance(999);
        await write(store, 'b');
        expect(await readAll(store)).toHaveLength(2);
        const watch = startWatch(store, '', 2n);
        await clock.advance(1);
        expect(await readBatches(watch, 1)).toEqual([[3n, '-a']]);
        await expect(store.keepAlive(lease)).rejects.toMatchObject({ kind: 'notFound' });
      }));

    it('expire exactly their TTL after the last renewal', () =>
      withStore(open, async (store, clock) => {
        const lease = await store.grantLease(1_000);
        await store.txn([], [putLeased('a', lease)]);
        await clock.advance(1);
        await store.keepAlive(lease);
        await clock.advance(999);
        await store.keepAlive(lease);
        await clock.advance(999);
        expect(await readAll(store)).toHaveLength(1);
        const watch = startWatch(store, '', 1n);
        await clock.advance(1);
        expect(await readBatches(watch, 1)).toEqual([[2n, '-a']]);
      }));

    it('cannot be renewed, put on a key or expired again after they have expired', () =>
      withStore(open, async (store, clock) => {
        const lease = await store.grantLease(1);
        await clock.advance(1);
        await expect(store.keepAlive(lease)).rejects.toMatchObject({ kind: 'notFound' });
        await expect(store.txn([], [put('b'), putLeased('a', lease)])).rejects.toMatchObject({
          kind: 'notFound',
        });
        await store.revokeLease(lease);
        expect(await readAll(store)).toEqual([]);
        expect(await store.revision()).toBe(0n);
      }));

    it('end at once when they are revoked, and leave other leases unchanged', () =>
      withStore(open, async (store, clock) => {
        const [first, second] = [await store.grantLease(1_000), await store.grantLease(1_000)];
        expect(second).not.toBe(first);
        await store.txn([], [putLeased('a', first), putLeased('b', second)]);
        await store.revokeLease(first);
        await store.revokeLease(first);
        expect(await readAll(store)).toEqual([['b', 'b']]);
        expect(await store.revision()).toBe(2n);
        await expect(store.keepAlive(first)).rejects.toMatchObject({ kind: 'notFound' });
        await clock.advance(500);
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

    it('last 60 days, longer than one timer can run', () =>
      withStore(open, async (store, clock) => {
        const lease = await store.grantLease(60 * 24 * 60 * 60 * 1_000);
        await clock.advance(59 * 24 * 60 * 60 * 1_000);
        await store.keepAlive(lease);
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
