import { describe, expect, it } from '@jest/globals';
import {
  put,
  putLeased,
  readAll,
  readBatches,
  startWatch,
  withStore,
  write,
  type OpenStore,
} from './harness.js';

/** Declares the conformance tests of the ends of leases that run on the given clock. */
export function describeLeaseTimes(open: OpenStore): void {
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

    it('last 60 days, longer than one timer can run', () =>
      withStore(open, async (store, clock) => {
        const lease = await store.grantLease(60 * 24 * 60 * 60 * 1_000);
        await clock.advance(59 * 24 * 60 * 60 * 1_000);
        await store.keepAlive(lease);
      }));
  });
}
