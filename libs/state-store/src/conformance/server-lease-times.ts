import { setTimeout as sleep } from 'node:timers/promises';
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

/**
 * Declares the conformance tests of the ends of leases that run on the clock of a server. They wait
 * for real time, because nothing else ends such a lease.
 * @param minimumMs - Shortest time of a lease.
 */
export function describeServerLeaseTimes(open: OpenStore, minimumMs: number): void {
  describe('leases', () => {
    it('delete their keys in one transaction after their time, unless they were renewed', () =>
      withStore(open, async (store) => {
        const [ending, renewed] = [await store.grantLease(1), await store.grantLease(minimumMs)];
        await store.txn([], [putLeased('b', ending), put('c'), putLeased('a', ending)]);
        await store.txn([], [putLeased('d', ending), putLeased('e', renewed)]);
        const watch = startWatch(store, '', 2n);
        const ended = readBatches(watch, 1);
        await store.keepAlive(ending);
        const renewedAt = Date.now();
        let hasEnded = false;
        void ended.then(() => (hasEnded = true));
        while (!hasEnded) {
          await sleep(minimumMs / 4);
          await store.keepAlive(renewed);
        }
        expect(await ended).toEqual([[3n, '-a', '-b', '-d']]);
        expect(Date.now() - renewedAt).toBeGreaterThanOrEqual(minimumMs);
        expect(await readAll(store)).toEqual([
          ['c', 'c'],
          ['e', 'e'],
        ]);
        await expect(store.keepAlive(ending)).rejects.toMatchObject({ kind: 'notFound' });
        await expect(store.txn([], [put('f'), putLeased('g', ending)])).rejects.toMatchObject({
          kind: 'notFound',
        });
        await store.revokeLease(ending);
        expect(await write(store, 'f')).toBe(4n);
      }));
  });
}
