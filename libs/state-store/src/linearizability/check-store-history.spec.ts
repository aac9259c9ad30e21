import { CloudlessError, createSeededRandom } from '@cloudless/base';
import { ManualClock } from '@cloudless/base/testing';
import {
  RevisionConflictError,
  createMemoryStateStore,
  type ChangeBatch,
  type StateStore,
} from '../index.js';
import {
  HistoryRecorder,
  StoreLog,
  checkStoreHistory,
  checkWatch,
  readStoreLog,
  recordStoreCalls,
  runConcurrentClients,
  type StoreInput,
  type StoreOutput,
} from './index.js';

const bytes = (text: string): Uint8Array => new TextEncoder().encode(text);
const put = (key: string, value: string) => ({ put: key, value: bytes(value) });

/** Runs calls on a memory store, through a wrapper with an anomaly, and checks the history. */
async function check(
  wrap: (store: StateStore) => StateStore,
  run: (store: StateStore) => Promise<unknown>,
): Promise<readonly string[]> {
  const store = createMemoryStateStore({ clock: new ManualClock() });
  const recorder = new HistoryRecorder<StoreInput, StoreOutput>();
  await run(recordStoreCalls(wrap(store), recorder, 'a'));
  const log = await readStoreLog(store, await store.revision());
  await store.close();
  return checkStoreHistory(log, recorder.calls);
}

const unchanged = (store: StateStore): StateStore => store;

describe('checkStoreHistory', () => {
  it('accepts reads, conflicts, deletions, transactions without effect, and ends of leases', async () => {
    const problems = await check(unchanged, async (store) => {
      const { revision } = await store.txn([{ key: 'x', is: 'absent' }], [put('x', '1')]);
      await store.get('x');
      await store.get('none');
      await store.txn([{ key: 'x', is: 'absent' }], [put('x', '2')]).catch(() => undefined);
      await store.txn([], [put('y', '3'), { delete: 'none' }]);
      await store.range({ prefix: '', limit: 1 });
      await store.range({ prefix: '', revision });
      await store.txn([{ key: 'x', is: revision }], [{ delete: 'x' }]);
      await store.txn([], [{ delete: 'x' }]);
      await store.revision();
      const lease = await store.grantLease(1_000);
      await store.txn([], [{ ...put('z', '4'), lease }]);
      await store.revokeLease(lease);
      await store.get('z');
    });
    expect(problems).toEqual([]);
  });

  it.each([
    {
      name: 'that was never committed',
      wrap: (store: StateStore): StateStore => ({
        ...delegate(store),
        txn: () => Promise.reject(new CloudlessError('deadline', 'no answer')),
      }),
    },
    {
      name: 'that was committed',
      wrap: (store: StateStore): StateStore => ({
        ...delegate(store),
        txn: async (...args) => {
          await store.txn(...args);
          throw new CloudlessError('unavailable', 'the connection broke');
        },
      }),
    },
  ])('accepts a write with an unknown outcome $name', async ({ wrap }) => {
    expect(
      await check(wrap, async (store) => {
        await store.txn([], [put('x', '1')]).catch(() => undefined);
        await store.get('x');
      }),
    ).toEqual([]);
  });

  it.each([
    {
      name: 'a lost update',
      wrap: ignoreCompares,
      run: async (store: StateStore) => {
        await store.txn([{ key: 'x', is: 'absent' }], [put('x', '1')]);
        await store.txn([{ key: 'x', is: 'absent' }], [put('x', '2')]);
      },
      expected:
        'a: the transaction [put x] was committed at revision 2 although x was at 1, not absent',
    },
    {
      name: 'an acknowledged write that was lost',
      wrap: loseWrites,
      run: (store: StateStore) => store.txn([], [put('x', '1')]),
      expected:
        'a: the transaction [put x] was acknowledged with revision 1, but the log does not have this change',
    },
    {
      name: 'a stale read',
      wrap: serveFirstRead,
      run: async (store: StateStore) => {
        await store.txn([], [put('x', '1')]);
        await store.get('x');
        await store.txn([], [put('x', '2')]);
        await store.get('x');
      },
      expected: 'a: read x as of revision 1, which it had at no revision from 2 on',
    },
    {
      name: 'a range as of an older revision',
      wrap: (store: StateStore): StateStore => ({
        ...delegate(store),
        range: (request) => store.range({ ...request, revision: 1n }),
      }),
      run: async (store: StateStore) => {
        await store.txn([], [put('x', '1')]);
        await store.txn([], [put('x', '2')]);
        await store.range({ prefix: '' });
      },
      expected: 'a: read the range  at revision 1 after revision 2 was known',
    },
    {
      name: 'a range that lacks an entry',
      wrap: (store: StateStore): StateStore => ({
        ...delegate(store),
        range: async (request) => ({ ...(await store.range(request)), entries: [] }),
      }),
      run: async (store: StateStore) => {
        await store.txn([], [put('x', '1')]);
        await store.range({ prefix: '' });
      },
      expected: 'a: read the range  at revision 1 as [] instead of [x@1]',
    },
    {
      name: 'a write that was applied twice',
      wrap: applyTwice,
      run: (store: StateStore) => store.txn([], [put('x', '1')]),
      expected:
        'revision 2 puts x, which no call of the history explains; the value was written by a (committed at revision 1)',
    },
    {
      name: 'a write with an unknown outcome that was applied twice',
      wrap: (store: StateStore): StateStore => ({
        ...delegate(store),
        txn: async (...args) => {
          await applyTwice(store).txn(...args);
          throw new CloudlessError('deadline', 'no answer');
        },
      }),
      run: (store: StateStore) => store.txn([], [put('x', '1')]).catch(() => undefined),
      expected:
        'revision 2 puts x, which no call of the history explains; the value was written by a (outcome unknown)',
    },
    {
      name: 'a refused write that was applied',
      wrap: (store: StateStore): StateStore => ({
        ...delegate(store),
        txn: async (...args) => {
          await store.txn(...args);
          throw new CloudlessError('exhausted', 'the disk is full');
        },
      }),
      run: (store: StateStore) => store.txn([], [put('x', '1')]).catch(() => undefined),
      expected:
        'revision 1 puts x, which no call of the history explains; the value was written by a (refused)',
    },
    {
      name: 'a conflict that never was',
      wrap: refuseWithOldRevision,
      run: async (store: StateStore) => {
        await store.txn([], [put('x', '1')]);
        await store.txn([], [put('x', '2')]);
        await store.txn([{ key: 'x', is: 'absent' }], [put('x', '3')]).catch(() => undefined);
      },
      expected:
        'a: the transaction [put x] was refused because x was at 1, which it was at no revision from 2 on',
    },
  ])('finds $name', async ({ wrap, run, expected }) => {
    expect(await check(wrap, run)).toContain(expected);
  });

  it('finds a read of a write that began after the read had returned', async () => {
    const store = createMemoryStateStore({ clock: new ManualClock() });
    const { revision } = await store.txn([], [put('x', '1')]);
    const entry = await store.get('x');
    const log = await readStoreLog(store, revision);
    const operations = [put('x', '1')];
    const problems = checkStoreHistory(log, [
      {
        client: 'reader',
        input: { kind: 'get', key: 'x' },
        calledAt: 1,
        result: { output: { kind: 'entry', entry }, returnedAt: 2 },
      },
      {
        client: 'writer',
        input: { kind: 'txn', compares: [], operations },
        calledAt: 3,
        result: { output: { kind: 'committed', revision }, returnedAt: 4 },
      },
    ]);
    expect(problems).toEqual([
      'writer: the transaction [put x] took effect at revision 1, but the call began after revision 1 was known',
    ]);
  });

  it('finds nothing in 20 histories of concurrent clients, and something in each with lost compares', async () => {
    for (let seed = 1; seed <= 20; seed += 1) {
      for (const wrap of [unchanged, ignoreCompares]) {
        const store = createMemoryStateStore({ clock: new ManualClock() });
        const calls = await runConcurrentClients(wrap(store), {
          random: createSeededRandom(seed),
          clients: 4,
          callsPerClient: 30,
        });
        const log = await readStoreLog(store, await store.revision());
        expect(checkStoreHistory(log, calls).length > 0).toBe(wrap === ignoreCompares);
      }
    }
  });
});

describe('checkWatch', () => {
  const change = (revision: bigint, key: string): ChangeBatch => ({
    revision,
    changes: [{ kind: 'put', entry: { key, value: bytes(`${revision}`), modRevision: revision } }],
  });
  const [first, second, third] = [change(1n, '/a/1'), change(2n, '/b/1'), change(5n, '/a/2')];
  const log = new StoreLog([first, second, third]);
  const problemsOf = (batches: readonly ChangeBatch[], prefix = '/', after = 0n) =>
    checkWatch(log, { client: 'a', prefix, after, batches });

  it('accepts every change in order, from a revision on, under a prefix, and an early end', () => {
    expect(problemsOf([first, second, third])).toEqual([]);
    expect(problemsOf([second], '/', 1n)).toEqual([]);
    expect(problemsOf([first, third], '/a/')).toEqual([]);
    expect(problemsOf([])).toEqual([]);
  });

  it.each([
    {
      name: 'changes out of order',
      batches: [second, first],
      expected: 'the watch of a left out revision 1',
    },
    {
      name: 'a change that was delivered twice',
      batches: [first, first],
      expected: 'the watch of a delivered revision 1 after revision 1',
    },
    {
      name: 'a gap',
      batches: [first, third],
      expected: 'the watch of a left out revision 2',
    },
    {
      name: 'a change that never was',
      batches: [first, second, third, change(6n, '/a/3')],
      expected: 'the watch of a delivered revision 6, which the log does not have',
    },
    {
      name: 'other changes than those of the revision',
      batches: [{ ...second, revision: 1n }],
      expected: 'the watch of a delivered other changes of revision 1 than the log',
    },
  ])('finds $name', ({ batches, expected }) => {
    expect(problemsOf(batches)).toEqual([expected]);
  });
});

/** The methods of a store, which a spread does not copy. */
function delegate(store: StateStore): StateStore {
  return recordStoreCalls(store, new HistoryRecorder(), '');
}

function ignoreCompares(store: StateStore): StateStore {
  return { ...delegate(store), txn: (_compares, operations) => store.txn([], operations) };
}

function loseWrites(store: StateStore): StateStore {
  return { ...delegate(store), txn: async () => ({ revision: (await store.revision()) + 1n }) };
}

function serveFirstRead(store: StateStore): StateStore {
  const cache = new Map<string, ReturnType<StateStore['get']>>();
  return {
    ...delegate(store),
    get: (key) => {
      const cached = cache.get(key) ?? store.get(key);
      cache.set(key, cached);
      return cached;
    },
  };
}

function applyTwice(store: StateStore): StateStore {
  return {
    ...delegate(store),
    txn: async (compares, operations) => {
      const committed = await store.txn(compares, operations);
      await store.txn([], operations);
      return committed;
    },
  };
}

function refuseWithOldRevision(store: StateStore): StateStore {
  return {
    ...delegate(store),
    txn: (compares, operations) =>
      store.txn(compares, operations).catch((reason: RevisionConflictError) => {
        throw new RevisionConflictError(reason.scope, reason.since, 1n);
      }),
  };
}
