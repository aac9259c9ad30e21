import { describe, expect, it } from '@jest/globals';
import { settle } from '@cloudless/base/testing';
import type { StateStore } from '../state-store.js';
import { put, startWatch, withStore, write, type EngineTraits, type OpenStore } from './harness.js';

/** Declares the conformance tests of `StateStore.close`. */
export function describeClose(
  open: OpenStore,
  { sharesRevisions = false }: EngineTraits = {},
): void {
  describe('close', () => {
    it('waits for running writes and ends watches without error', () =>
      withStore(open, async (store) => {
        const watch = startWatch(store, '', 0n);
        const pendingRead = watch.next();
        await settle();
        const writes = Promise.all([write(store, 'a'), write(store, 'b')]);
        await store.close();
        expect(await writes).toEqual(sharesRevisions ? [1n, 1n] : [1n, 2n]);
        expect((await pendingRead).done ?? false).toBe(true);
        expect(await watch.next()).toEqual({ done: true, value: undefined });
      }));

    it('can be called twice, also concurrently', () =>
      withStore(open, async (store) => {
        await Promise.all([store.close(), store.close()]);
        await store.close();
      }));

    it.each<{ name: string; call: (store: StateStore) => Promise<unknown> }>([
      { name: 'get', call: (store) => store.get('a') },
      { name: 'range', call: (store) => store.range({ prefix: '' }) },
      { name: 'txn', call: (store) => store.txn([], [put('a')]) },
      { name: 'watch', call: (store) => startWatch(store, '', 0n).next() },
      { name: 'revision', call: (store) => store.revision() },
      { name: 'grantLease', call: (store) => store.grantLease(1) },
      { name: 'keepAlive', call: (store) => store.keepAlive('lease') },
      { name: 'revokeLease', call: (store) => store.revokeLease('lease') },
    ])('makes later calls of $name fail as unavailable', ({ call }) =>
      withStore(open, async (store) => {
        await store.close();
        await expect(call(store)).rejects.toMatchObject({ kind: 'unavailable' });
      }),
    );

    it('cancels the timers of leases', () =>
      withStore(open, async (store, clock) => {
        await store.grantLease(10);
        await store.close();
        expect(clock.pendingTimers).toBe(0);
        await clock.advance(1_000);
      }));
  });
}
