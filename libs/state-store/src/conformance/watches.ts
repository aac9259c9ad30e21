import { describe, expect, it } from '@jest/globals';
import { settle } from '@cloudless/base/testing';
import type { ChangeBatch, Revision } from '../state-store.js';
import {
  AMPLE_HISTORY,
  put,
  startWatch,
  readBatches,
  withStore,
  write,
  type EngineTraits,
  type OpenStore,
} from './harness.js';

/** Declares the conformance tests of `StateStore.watch`. */
export function describeWatches(open: OpenStore, traits: EngineTraits = {}): void {
  describe('watches', () => {
    it('deliver changes before and after their start, one batch for each transaction', () =>
      withStore(open, async (store) => {
        await store.txn([], [put('a', '1'), put('b', '1')]);
        const watch = startWatch(store, '', 0n);
        expect(await readBatches(watch, 1)).toEqual([[1n, 'a=1', 'b=1']]);
        const pendingBatches = readBatches(watch, 2);
        await store.txn([], [{ delete: 'b' }, put('c', '2'), put('a', '2')]);
        await store.txn([], [{ delete: 'absent' }]);
        await write(store, 'c', '3');
        expect(await pendingBatches).toEqual([
          [2n, '-b', 'c=2', 'a=2'],
          [3n, 'c=3'],
        ]);
      }));

    it('deliver only changes under their prefix', () =>
      withStore(open, async (store) => {
        const watch = startWatch(store, 'b/', 0n);
        await store.txn([], [put('a/1'), put('b/1'), put('b'), put('b/2')]);
        await write(store, 'a/2');
        await store.txn([], [{ delete: 'b/1' }, { delete: 'a/1' }]);
        expect(await readBatches(watch, 2)).toEqual([
          [1n, 'b/1=b/1', 'b/2=b/2'],
          [3n, '-b/1'],
        ]);
      }));

    it('deliver nothing of refused transactions', () =>
      withStore(open, async (store) => {
        const watch = startWatch(store, '', 0n);
        await write(store, 'a', '1');
        await expect(
          store.txn([{ key: 'a', is: 'absent' }], [put('a', 'no'), put('b', 'no')]),
        ).rejects.toMatchObject({
          kind: 'conflict',
        });
        await write(store, 'a', '2');
        expect(await readBatches(watch, 2)).toEqual([
          [1n, 'a=1'],
          [2n, 'a=2'],
        ]);
      }));

    it('resume from any revision without gaps or duplicates', () =>
      withStore(open, async (store) => {
        for (let round = 1; round <= 30; round += 1)
          await store.txn([], [put(`k${round % 4}`, `${round}`), put('all', `${round}`)]);
        const whole = await readBatches(startWatch(store, '', 0n), 30);
        for (let after = 0; after < 30; after += 1) {
          expect(await readBatches(startWatch(store, '', BigInt(after)), 30 - after)).toEqual(
            whole.slice(after),
          );
        }
      }));

    it('deliver concurrent transactions in order and unsplit', () =>
      withStore(open, async (store) => {
        const watch = startWatch(store, '', 0n);
        const writes = Promise.all(
          Array.from({ length: 300 }, (_, index) =>
            store.txn([], [put(`a${index}`), put(`b${index}`)]),
          ),
        );
        let expected = 1n;
        const pairs: string[] = [];
        while (pairs.length < 300) {
          const [[revision, ...changes] = [0n]] = await readBatches(watch, 1);
          expect(revision).toBe(expected);
          expected += 1n;
          if (traits.sharesRevisions !== true) expect(changes).toHaveLength(2);
          for (let index = 0; index < changes.length; index += 2) {
            expect(changes[index + 1]).toBe(changes[index]?.replaceAll('a', 'b'));
            pairs.push(changes[index] ?? '');
          }
        }
        await writes;
        expect(new Set(pairs).size).toBe(300);
      }));

    it('end without error when their signal is aborted', () =>
      withStore(open, async (store) => {
        const stop = new AbortController();
        const watch = store
          .watch({ prefix: '', after: 0n, signal: stop.signal })
          [Symbol.asyncIterator]();
        const pendingBatches = watch.next();
        await settle();
        stop.abort();
        expect(await pendingBatches).toEqual({ done: true, value: undefined });
        await write(store, 'a');
        expect(await watch.next()).toEqual({ done: true, value: undefined });
        const later = store
          .watch({ prefix: '', after: 0n, signal: stop.signal })
          [Symbol.asyncIterator]();
        expect(await later.next()).toEqual({ done: true, value: undefined });
      }));

    it('end without error when the reader calls return, also during a pending read', () =>
      withStore(open, async (store) => {
        const watch = startWatch(store, '', 0n);
        const pendingBatches = watch.next();
        await settle();
        await watch.return?.();
        expect(await pendingBatches).toEqual({ done: true, value: undefined });
        for await (const batch of store.watch({
          prefix: '',
          after: (await write(store, 'a')) - 1n,
        })) {
          expect(batch.revision).toBe(1n);
          break;
        }
      }));

    it('serve several readers independently', () =>
      withStore(open, async (store) => {
        const [fast, slow] = [startWatch(store, '', 0n), startWatch(store, '', 0n)];
        for (let round = 1; round <= 5; round += 1) {
          await write(store, 'a', `${round}`);
          expect(await readBatches(fast, 1)).toEqual([[BigInt(round), `a=${round}`]]);
        }
        expect((await readBatches(slow, 5)).map(([revision]) => revision)).toEqual([
          1n,
          2n,
          3n,
          4n,
          5n,
        ]);
      }));

    it('start at any retained revision and refuse compacted ones', () =>
      withStore(
        open,
        async (store) => {
          for (let round = 1; round <= 100; round += 1) await write(store, 'a', `${round}`);
          for (const after of [90n, 95n, 99n]) {
            expect(await readBatches(startWatch(store, '', after), 1)).toEqual([
              [after + 1n, `a=${after + 1n}`],
            ]);
          }
          await expect(startWatch(store, '', 0n).next()).rejects.toMatchObject({
            kind: 'compacted',
          });
          await expect(startWatch(store, '', 50n).next()).rejects.toMatchObject({
            kind: 'compacted',
          });
        },
        10, // historyLimit: changes to retain
      ));

    it('skip nothing, or fail as compacted, when a reader falls too far behind', () =>
      withStore(
        open,
        async (store) => {
          const watch = startWatch(store, '', 0n);
          await write(store, 'a', '1');
          expect(await readBatches(watch, 1)).toEqual([[1n, 'a=1']]);
          for (let round = 2; round <= 100; round += 1) await write(store, 'a', `${round}`);
          if (traits.buffersWatches === true) {
            const delivered = await readUntilCompacted(watch, 100);
            expect(delivered).toEqual(delivered.map((_, index) => BigInt(index + 2)));
            return;
          }
          await expect(watch.next()).rejects.toMatchObject({ kind: 'compacted' });
          expect(await watch.next()).toEqual({ done: true, value: undefined });
        },
        10, // historyLimit: changes to retain
      ));

    it('never fail as compacted when the reader is prompt, also without changes under the prefix', () =>
      withStore(
        open,
        async (store) => {
          const [watch, idle] = [startWatch(store, 'a', 0n), startWatch(store, 'b', 0n)];
          const idleRead = idle.next();
          for (let round = 1; round <= 100; round += 1) {
            const pendingBatches = readBatches(watch, 1);
            await write(store, 'a', `${round}`);
            expect(await pendingBatches).toEqual([[BigInt(round), `a=${round}`]]);
          }
          await write(store, 'b');
          expect(await idleRead).toMatchObject({ done: false, value: { revision: 101n } });
        },
        10, // historyLimit: changes to retain
      ));

    it('refuse a start revision whose later changes exceed historyBytes', () =>
      withStore(
        open,
        async (store) => {
          const value = 'v'.repeat(10_000);
          for (let round = 1; round <= 40; round += 1) await write(store, 'a', value);
          await expect(startWatch(store, '', 15n).next()).rejects.toMatchObject({
            kind: 'compacted',
          });
          expect(
            (await readBatches(startWatch(store, '', 38n), 2)).map(([revision]) => revision),
          ).toEqual([39n, 40n]);
        },
        AMPLE_HISTORY,
        200_000, // historyBytes
      ));

    it('refuse a start revision in the future', () =>
      withStore(open, (store) =>
        expect(startWatch(store, '', 1n).next()).rejects.toMatchObject({ kind: 'invalid' }),
      ));
  });
}

/** Reads revisions up to `last`, or until the watch fails as compacted. */
async function readUntilCompacted(
  watch: AsyncIterator<ChangeBatch>,
  last: number,
): Promise<readonly Revision[]> {
  const revisions: Revision[] = [];
  while (revisions.at(-1) !== BigInt(last)) {
    try {
      const next = await watch.next();
      if (next.done === true) throw new Error('the watch ended');
      revisions.push(next.value.revision);
    } catch (reason) {
      expect(reason).toMatchObject({ kind: 'compacted' });
      break;
    }
  }
  return revisions;
}
