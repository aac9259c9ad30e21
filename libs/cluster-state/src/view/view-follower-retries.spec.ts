import { create } from '@bufbuild/protobuf';
import { NodeRecordSchema } from '@cloudless/api/store';
import {
  CloudlessError,
  StoppedError,
  createSeededRandom,
  silentLog,
  type Log,
} from '@cloudless/base';
import { ManualClock } from '@cloudless/base/testing';
import { createMemoryStateStore, type Change, type StateStore } from '@cloudless/state-store';
import { openClusterState, type ClusterState } from '../index.js';
import { encodeRecord, toKey } from '../records/records.js';

let clock: ManualClock;
let store: StateStore;
let state: ClusterState;
/** Calls of the store that the follower gets in place of the real ones. */
let calls: Partial<StateStore>;
/** Ends the running watches of the follower as a broken connection does. */
let breakWatches: () => void;

beforeEach(async () => {
  clock = new ManualClock();
  store = createMemoryStateStore({ clock, historyLimit: 10 });
  calls = {};
  let broken = new AbortController();
  breakWatches = () => {
    broken.abort();
    broken = new AbortController();
  };
  const watch: StateStore['watch'] = async function* (request) {
    const ending = AbortSignal.any([request.signal as AbortSignal, broken.signal]);
    yield* store.watch({ ...request, signal: ending });
    if (request.signal?.aborted !== true) await fail();
  };
  const real: Partial<StateStore> = { watch };
  state = await openClusterState({
    store: new Proxy(store, {
      get: (target, name) => {
        const value: unknown =
          Reflect.get(calls, name) ?? Reflect.get(real, name) ?? Reflect.get(target, name);
        return typeof value === 'function' ? value.bind(target) : value;
      },
    }),
    ...{ clock, holder: 'c1/1', log: silentLogOfState, leadership: 'follow' },
    random: createSeededRandom(1),
  });
});
afterEach(async () => {
  await state.close();
  await store.close();
});

const silentLogOfState: Log = { ...silentLog };
/** A watch that loses the changes of one key, as a bug of the store may. */
const loseChangesOf = (key: string): StateStore['watch'] =>
  async function* (request) {
    for await (const { changes, revision } of store.watch(request)) {
      const keyOf = (change: Change): string =>
        change.kind === 'put' ? change.entry.key : change.key;
      yield { changes: changes.filter((change) => keyOf(change) !== key), revision };
    }
  };
const fail = (): Promise<never> =>
  Promise.reject(new CloudlessError('STORE_UNAVAILABLE', 'no store'));
async function* failingWatch(): AsyncGenerator<never> {
  await fail();
}
const listNodes = (): string[] => [...state.view().nodes()].map(({ value }) => value.id).sort();
const putNode = (id: string, cordoned = false): Promise<unknown> => {
  const value = encodeRecord('node', create(NodeRecordSchema, { id, cordoned })).bytes;
  return store.txn([], [{ put: toKey('node', id), value }]);
};

describe('the view of a follower', () => {
  it('stays readable during an outage of the store, knows its age, and continues without a gap', async () => {
    const seen: string[] = [];
    state.subscribe((changes) => changes.forEach(({ id }) => seen.push(id)));
    await putNode('before');
    await clock.advance(1_500);
    expect(state.viewAgeMs).toBeLessThan(1_010);
    calls = { watch: failingWatch, revision: fail, range: fail };
    breakWatches();
    await putNode('during');
    await clock.advance(60_000);
    expect(listNodes()).toEqual(['before']);
    expect([state.isFollowing, Math.round(state.viewAgeMs / 1_000)]).toEqual([true, 61]);
    calls = {};
    await clock.advance(3_000);
    expect([listNodes(), seen]).toEqual([
      ['before', 'during'],
      ['before', 'during'],
    ]);
    expect(state.viewAgeMs).toBeLessThan(1_010);
  });

  it('reads a new snapshot when the store has compacted the changes of the outage, and gives listeners the difference', async () => {
    await putNode('gone');
    await putNode('kept');
    await clock.advance(0);
    calls = { watch: failingWatch };
    breakWatches();
    await store.txn([], [{ delete: toKey('node', 'gone') }]);
    for (let count = 0; count < 100; count += 1) await putNode('changed', count % 2 === 0);
    await clock.advance(100);
    const differences: string[] = [];
    state.subscribe((changes) => changes.forEach(({ id }) => differences.push(id)));
    calls = {};
    await clock.advance(3_000);
    expect([listNodes(), differences.sort()]).toEqual([
      ['changed', 'kept'],
      ['changed', 'gone'],
    ]);
  });

  it('watches again when the watch stays silent although the store has changes', async () => {
    calls = {
      watch: async function* (request) {
        for await (const batch of store.watch(request)) if (batch.revision === 0n) yield batch;
      },
    };
    breakWatches();
    await clock.advance(500);
    calls = {};
    await putNode('silent');
    await clock.advance(2_000);
    expect(listNodes()).toEqual([]);
    await clock.advance(6_000);
    expect(listNodes()).toEqual(['silent']);
  });

  it('ends when a record cannot be read', async () => {
    const ended = new Promise((resolve) => state.onEnd(resolve));
    await store.txn([], [{ put: toKey('node', 'bad'), value: Uint8Array.of(10, 200) }]);
    await clock.advance(0);
    expect(await ended).toMatchObject({ kind: 'unavailable', cause: { kind: 'internal' } });
    expect(state.isFollowing).toBe(false);
  });

  it('ends when the revision of the store went back', async () => {
    const older = createMemoryStateStore({ clock });
    await putNode('newer');
    await putNode('newest');
    await clock.advance(0);
    calls = { watch: (request) => older.watch(request) };
    breakWatches();
    await clock.advance(5_000);
    expect(state.isFollowing).toBe(false);
    await older.close();
  });
});

describe('waits of a follower', () => {
  it('waitForNewest shows what was committed before the call, with one read for calls at the same time', async () => {
    let reads = 0;
    calls.revision = async () => {
      reads += 1;
      return store.revision();
    };
    await putNode('n');
    await Promise.all(Array.from({ length: 50 }, () => state.waitForNewest()));
    expect(listNodes()).toEqual(['n']);
    expect(reads).toBe(2); // the calls during the first read share the second
    calls.revision = fail;
    await expect(state.waitForNewest()).rejects.toMatchObject({ kind: 'unavailable' });
  });

  it('waitForNewest reaches a revision that changed no record', async () => {
    await store.txn([], [{ put: 'no-record', value: new Uint8Array() }]);
    let isShown = false;
    void state.waitForNewest().then(
      () => (isShown = true),
      () => undefined, // the end of the test
    );
    await clock.advance(100);
    expect(isShown).toBe(true);
  });

  it('end with their signal, and leave other waits alone', async () => {
    const stop = new AbortController();
    const stopped = state.waitForRevision(2n, stop.signal);
    const other = state.waitForRevision(2n);
    stop.abort();
    await expect(stopped).rejects.toBeInstanceOf(StoppedError);
    await expect(state.waitForRevision(2n, stop.signal)).rejects.toBeInstanceOf(StoppedError);
    await putNode('n');
    await other;
    await state.waitForRevision(2n, stop.signal); // shown already
  });
});

describe('the comparison of the view with the store', () => {
  const logged: string[] = [];
  const spyOnLog = (): void => {
    logged.length = 0;
    Object.assign(silentLogOfState, { error: (message: string) => void logged.push(message) });
  };

  it.each([
    { name: 'a change', lost: 'put' },
    { name: 'a deletion', lost: 'delete' },
  ])('finds and mends $name that the watch has lost', async ({ lost }) => {
    spyOnLog();
    await putNode('n');
    await clock.advance(0);
    calls = { watch: loseChangesOf(toKey('node', 'n')) };
    breakWatches();
    await clock.advance(500);
    if (lost === 'put') await putNode('n', true);
    else await store.txn([], [{ delete: toKey('node', 'n') }]);
    await putNode('other');
    await clock.advance(1_000);
    expect(state.view().node('n')?.value.cordoned).toBe(false);
    await clock.advance(10 * 60_000);
    expect(state.view().node('n')?.value.cordoned).toBe(lost === 'put' ? true : undefined);
    expect(logged).toEqual(['view differs from the state store, reading a new snapshot']);
  });

  it('finds nothing while records are written, changed and deleted during the comparison', async () => {
    spyOnLog();
    let count = 0;
    const write = async (): Promise<void> => {
      count += 1;
      await putNode(`n${count % 7}`, count % 2 === 0);
      if (count % 3 === 0) await store.txn([], [{ delete: toKey('node', `n${(count + 4) % 7}`) }]);
    };
    calls.range = async (request) => {
      await write();
      return store.range({ ...request, limit: 2 });
    };
    for (let minute = 0; minute < 21; minute += 1) {
      await write();
      await clock.advance(60_000);
    }
    expect(count).toBeGreaterThan(21);
    expect(logged).toEqual([]);
  });
});
