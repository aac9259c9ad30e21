import { CloudlessError, type Log } from '@cloudless/base';
import { ManualClock, settle } from '@cloudless/base/testing';
import { createEngineStore, StorageFault, type EngineStoreOptions } from '../index.js';
import { MemoryStorage } from '../memory/memory-storage.js';
import { getChangedKey } from '../validate.js';
import type { StorageWriter } from './storage.js';

/** Storage whose writes a test can count, delay and fail, and whose files a test can lose. */
class TestStorage extends MemoryStorage {
  /** Number of calls of `write`. */
  writes = 0;
  /** Error of all writes; undefined when writes succeed. */
  failure: Error | undefined;
  /** Writes call their action only after this promise. */
  opened: Promise<void> = Promise.resolve();
  /** Writes resolve only after this promise. */
  flushed: Promise<void> = Promise.resolve();
  lostFiles: StorageFault | undefined;

  override async write<T>(action: (writer: StorageWriter) => T): Promise<T> {
    this.writes += 1;
    await this.opened;
    if (this.failure !== undefined) throw this.failure;
    const result = action(this);
    await this.flushed;
    return result;
  }

  fault(): StorageFault | undefined {
    return this.lostFiles;
  }
}

function aStore(options: Partial<EngineStoreOptions> = {}) {
  const [storage, clock] = [new TestStorage(1_000), new ManualClock()];
  return {
    storage,
    clock,
    store: createEngineStore({ storage, clock, historyLimit: 1_000, ...options }),
  };
}

function recordingLog(lines: unknown[]): Log {
  const at = (level: string) => (message: string) => void lines.push(`${level} ${message}`);
  const log: Log = {
    error: at('error'),
    warn: at('warn'),
    info: at('info'),
    debug: at('debug'),
    child: () => log,
  };
  return log;
}

function put(key: string) {
  return { put: key, value: new Uint8Array() };
}

const DISK_FULL = new CloudlessError('exhausted', 'disk full');

describe('EngineStore', () => {
  it('records the earlier values of keys that are compared and written in any order', async () => {
    const { store, storage } = aStore();
    const value = (text: string): Uint8Array => new TextEncoder().encode(text);
    const keys = ['a', 'b', 'c', 'd'];
    await store.txn(
      [],
      keys.map((key) => ({ put: key, value: value(`first ${key}`) })),
    );
    await store.txn(
      ['c', 'a', 'd', 'x'].map((key) => ({ key, is: key === 'x' ? 'absent' : 1n })),
      ['x', 'a', 'b', 'd', 'c'].map((key) => ({ put: key, value: value(`second ${key}`) })),
    );
    const [second] = storage.read((reader) => [...reader.history(1n)]);
    const texts = second?.changes.map((change, index) => {
      const before = second.entriesBefore[index];
      return [getChangedKey(change), before && new TextDecoder().decode(before.value)];
    });
    expect(texts).toEqual([
      ['x', undefined],
      ...['a', 'b', 'd', 'c'].map((key) => [key, `first ${key}`]),
    ]);
  });

  it('commits all transactions that were queued during a write in one further write', async () => {
    const { store, storage } = aStore();
    let flush = (): void => undefined;
    storage.flushed = new Promise((resolve) => (flush = resolve));
    const first = store.txn([], [put('first')]);
    await settle();
    const rest = Array.from({ length: 100 }, (_, index) => store.txn([], [put(`k${index}`)]));
    await settle();
    expect(storage.writes).toBe(1);
    flush();
    await Promise.all([first, ...rest]);
    expect(storage.writes).toBe(2);
    expect(await store.revision()).toBe(101n);
  });

  it('commits what a caller sends after its commit together with those that waited', async () => {
    const { store, storage } = aStore();
    let flush = (): void => undefined;
    storage.flushed = new Promise((resolve) => (flush = resolve));
    const first = store.txn([], [put('first')]);
    await settle();
    const following = first.then(() => store.txn([], [put('following')]));
    const waiting = store.txn([], [put('waiting')]);
    let open = (): void => undefined;
    storage.opened = new Promise((resolve) => (open = resolve));
    flush();
    await settle();
    open();
    await Promise.all([following, waiting]);
    expect(storage.writes).toBe(2);
  });

  it('commits queued transactions in several writes when they exceed the byte limit of a group', async () => {
    const { store, storage } = aStore();
    await Promise.all(
      Array.from({ length: 20 }, (_, index) =>
        store.txn([], [{ put: `k${index}`, value: new Uint8Array(1_000_000) }]),
      ),
    );
    expect(storage.writes).toBe(3);
  });

  it('settles commits, refusals and watches only after the write is durable', async () => {
    const { store, storage } = aStore();
    let flush = (): void => undefined;
    storage.flushed = new Promise((resolve) => (flush = resolve));
    const notified: string[] = [];
    const record = (name: string) => () => void notified.push(name);
    const calls = [
      store.txn([], [put('a')]).then(record('committed')),
      store.txn([{ key: 'a', is: 'absent' }], []).catch(record('refused')),
      store.watch({ prefix: '', after: 0n })[Symbol.asyncIterator]().next().then(record('watch')),
    ];
    await settle();
    const before = [...notified];
    flush();
    await Promise.all(calls);
    expect({ before, after: notified.sort() }).toEqual({
      before: [],
      after: ['committed', 'refused', 'watch'],
    });
  });

  it('refuses writes while the disk is full and accepts them again when space is free', async () => {
    const { store, storage } = aStore();
    await store.txn([], [put('a')]);
    storage.failure = DISK_FULL;
    await expect(store.txn([], [put('b')])).rejects.toBe(DISK_FULL);
    expect((await store.range({ prefix: '' })).entries).toHaveLength(1);
    storage.failure = undefined;
    expect(await store.txn([], [put('b')])).toEqual({ revision: 2n });
  });

  it('refuses the transactions of a write that finds the disk full, and no others', async () => {
    const { store, storage } = aStore();
    const big = new Uint8Array(1_000_000);
    let open = (): void => undefined;
    storage.opened = new Promise((resolve) => (open = resolve));
    storage.failure = DISK_FULL;
    const sent = Array.from({ length: 10 }, (_, index) =>
      store.txn([], [{ put: `k${index}`, value: big }]).then(
        () => 'committed',
        (reason: unknown) => {
          storage.failure = undefined;
          return reason;
        },
      ),
    );
    await settle();
    open();
    // the first 8 fit into one group
    expect(await Promise.all(sent)).toEqual([
      ...Array.from({ length: 8 }, () => DISK_FULL),
      'committed',
      'committed',
    ]);
    expect(storage.writes).toBe(2);
  });

  it('calls onDiskSpaceChange once when the disk is full and once when space is free, also without writes', async () => {
    const notified: unknown[] = [];
    const { store, storage, clock } = aStore({
      onDiskSpaceChange: (hasSpace) => notified.push(hasSpace),
      log: recordingLog(notified),
    });
    await store.txn([], [put('a')]);
    storage.failure = DISK_FULL;
    for (let round = 0; round < 3; round += 1)
      await expect(store.txn([], [put('b')])).rejects.toBe(DISK_FULL);
    await clock.advance(60_000);
    expect(notified).toEqual([
      'warn disk full: writes are refused until space is free, reads continue',
      false,
    ]);
    storage.failure = undefined;
    await clock.advance(10_000);
    expect(notified.slice(2)).toEqual(['info disk has free space again: writes continue', true]);
    expect([await store.revision(), clock.pendingTimers]).toEqual([1n, 0]);
  });

  it('reports a full disk once while small writes succeed and large writes fail', async () => {
    const notified: unknown[] = [];
    const { store, storage, clock } = aStore({
      onDiskSpaceChange: (hasSpace) => notified.push(hasSpace),
    });
    for (let round = 0; round < 20; round += 1) {
      storage.failure = DISK_FULL;
      await expect(store.txn([], [put('large')])).rejects.toBe(DISK_FULL);
      storage.failure = undefined;
      await store.txn([], [put('small')]);
      await clock.advance(1_000);
    }
    expect(notified).toEqual([false]);
    await clock.advance(10_000);
    expect(notified).toEqual([false, true]);
  });

  it('reports free space only when no write was refused for 5 s', async () => {
    const notified: boolean[] = [];
    const { store, storage, clock } = aStore({
      onDiskSpaceChange: (hasSpace) => notified.push(hasSpace),
    });
    storage.failure = DISK_FULL;
    await expect(store.txn([], [put('a')])).rejects.toBe(DISK_FULL);
    storage.failure = undefined;
    await clock.advance(4_999);
    expect(notified).toEqual([false]);
    await clock.advance(1);
    expect(notified).toEqual([false, true]);
  });

  it('stops probing the disk after close', async () => {
    const { store, storage, clock } = aStore();
    storage.failure = DISK_FULL;
    await expect(store.txn([], [put('a')])).rejects.toBe(DISK_FULL);
    await store.close();
    expect(clock.pendingTimers).toBe(0);
  });

  it('deletes the keys of an expired lease later when the disk is full, but refuses renewal at once', async () => {
    const { store, storage, clock } = aStore();
    const lease = await store.grantLease(1_000);
    await store.txn([], [{ ...put('a'), lease }]);
    storage.failure = DISK_FULL;
    await clock.advance(5_000);
    await expect(store.keepAlive(lease)).rejects.toMatchObject({ kind: 'notFound' });
    expect(await store.get('a')).toBeDefined();
    storage.failure = undefined;
    await clock.advance(1_000);
    expect(await store.get('a')).toBeUndefined();
  });

  it('leaves no timer when it is closed before the keys of an expired lease could be deleted', async () => {
    const { store, storage, clock } = aStore();
    const lease = await store.grantLease(1_000);
    await store.txn([], [{ ...put('a'), lease }]);
    storage.failure = DISK_FULL;
    await clock.advance(1_500);
    await store.close();
    expect(clock.pendingTimers).toBe(0);
  });

  it('goes out of service when it is unknown whether a write was committed', async () => {
    const { store, storage, clock } = aStore();
    await store.grantLease(1_000);
    const watch = store.watch({ prefix: '', after: 0n })[Symbol.asyncIterator]();
    const waiting = watch.next();
    const cause = new Error('input/output error');
    storage.failure = cause;
    const attempts = await Promise.allSettled([
      store.txn([], [put('a')]),
      store.txn([], [put('b')]),
      waiting,
    ]);
    for (const attempt of attempts)
      expect(attempt).toMatchObject({ status: 'rejected', reason: { kind: 'unavailable', cause } });
    storage.failure = undefined;
    await expect(store.txn([], [put('a')])).rejects.toMatchObject({ kind: 'unavailable', cause });
    await expect(store.get('a')).rejects.toMatchObject({ kind: 'unavailable', cause });
    expect(clock.pendingTimers).toBe(0);
    await store.close();
  });

  it('refuses to renew an expired lease whose timer is late', async () => {
    class LateClock extends ManualClock {
      override setTimer() {
        return { cancel: (): void => undefined };
      }
    }
    const clock = new LateClock();
    const store = createEngineStore({ storage: new MemoryStorage(10), clock, historyLimit: 10 });
    const lease = await store.grantLease(1_000);
    await store.txn([], [{ ...put('a'), lease }]);
    await clock.advance(1_000);
    await expect(store.keepAlive(lease)).rejects.toMatchObject({ kind: 'notFound' });
    await store.txn([], [put('b')]);
    expect(await store.get('a')).toBeUndefined();
  });

  it.each([0, -1, 1.5, Number.NaN])('refuses a history limit of %d', (historyLimit) => {
    const options = { storage: new MemoryStorage(10), clock: new ManualClock(), historyLimit };
    expect(() => createEngineStore(options)).toThrow(/history limit/u);
  });
});

describe('EngineStore whose files are lost', () => {
  const FILES_LOST = new StorageFault('dataFile', 'it was deleted');

  it('neither acknowledges nor publishes a write whose flush ends after the loss', async () => {
    const { store, storage } = aStore();
    await store.txn([], [put('before')]);
    let flush = (): void => undefined;
    storage.flushed = new Promise((resolve) => (flush = resolve));
    const during = store.txn([], [put('during')]);
    await settle();
    storage.lostFiles = FILES_LOST;
    flush();
    await expect(during).rejects.toBe(FILES_LOST);
    const seen = store.watch({ prefix: '', after: 0n })[Symbol.asyncIterator]();
    expect((await seen.next()).value).toMatchObject({ revision: 1n });
    const next = Promise.race([seen.next().then(() => 'shown'), settle().then(() => 'not shown')]);
    expect(await next).toBe('not shown');
    await store.close();
  });

  it('refuses writes and serves reads', async () => {
    const { store, storage } = aStore();
    await store.txn([], [put('before')]);
    storage.lostFiles = FILES_LOST;
    await expect(store.txn([], [put('after')])).rejects.toBe(FILES_LOST);
    await expect(store.grantLease(1_000)).rejects.toBe(FILES_LOST);
    expect(storage.writes).toBe(1);
    expect((await store.range({ prefix: '' })).entries.map(({ key }) => key)).toEqual(['before']);
    await store.close();
  });

  it('detects the loss without a write, and calls onFault and logs once', async () => {
    const [lines, notified]: [unknown[], StorageFault[]] = [[], []];
    const { store, storage, clock } = aStore({
      log: recordingLog(lines),
      onFault: (fault) => notified.push(fault),
      checkIntervalMs: 1_000,
    });
    storage.lostFiles = FILES_LOST;
    await clock.advance(1_000);
    storage.lostFiles = undefined;
    await clock.advance(10_000);
    await expect(store.txn([], [put('after')])).rejects.toBe(FILES_LOST);
    expect({ notified, lines }).toEqual({
      notified: [FILES_LOST],
      lines: ['error data file lost: writes are refused'],
    });
    await store.close();
  });

  it('does not try to delete the keys of expired leases, and logs nothing about them', async () => {
    const lines: unknown[] = [];
    const { store, storage, clock } = aStore({ log: recordingLog(lines), checkIntervalMs: 1_000 });
    await store.grantLease(5_000);
    storage.lostFiles = FILES_LOST;
    await clock.advance(60_000);
    expect({ lines, writes: storage.writes }).toEqual({
      lines: ['error data file lost: writes are refused'],
      writes: 1,
    });
    await store.close();
  });
});
