import { create } from '@bufbuild/protobuf';
import { CoordinatorRecordSchema } from '@cloudless/api/store';
import { CloudlessError, createSeededRandom, silentLog, type Log } from '@cloudless/base';
import { ManualClock } from '@cloudless/base/testing';
import { createMemoryStateStore, type StateStore } from '@cloudless/state-store';
import { CoordinatorPresence } from '../index.js';
import { decodeRecord } from '../records/records.js';

const KEY = '/coordinator/c1';

let clock: ManualClock;
let store: StateStore;
let lines: string[];

beforeEach(() => {
  clock = new ManualClock();
  store = createMemoryStateStore({ clock });
  lines = [];
});
afterEach(() => store.close());

function start(holder: string, calls: Partial<StateStore> = {}): CoordinatorPresence {
  const log: Log = {
    ...silentLog,
    error: (message) => void lines.push(message),
    child: () => log,
  };
  return new CoordinatorPresence({
    store: replaceCalls(calls),
    ...{ clock, log },
    random: createSeededRandom(1),
    record: create(CoordinatorRecordSchema, { id: 'c1', address: `https://${holder}`, holder }),
  });
}

/** The store with the calls that `calls` has at the moment of a call. */
const replaceCalls = (calls: Partial<StateStore>): StateStore =>
  new Proxy(store, {
    get: (target, name) => {
      const value: unknown = Reflect.get(calls, name) ?? Reflect.get(target, name);
      return typeof value === 'function' ? value.bind(target) : value;
    },
  });

const never = (): Promise<never> => new Promise(() => undefined);

async function readHolder(): Promise<string | undefined> {
  const entry = await store.get(KEY);
  return entry && decodeRecord('coordinator', 'c1', entry.value).holder;
}

describe('CoordinatorPresence', () => {
  it('shows the coordinator as long as it runs, with one write, and removes the record when closed', async () => {
    const presence = start('a');
    await clock.advance(60_000);
    expect(await readHolder()).toBe('a');
    expect(await store.revision()).toBe(1n);
    await presence.close();
    await presence.close();
    expect(await readHolder()).toBeUndefined();
  });

  it('lets the record disappear 10 s after the process has ended', async () => {
    const presence = start('a', { keepAlive: never });
    await clock.advance(9_999);
    expect(await readHolder()).toBe('a');
    await clock.advance(1);
    expect(await readHolder()).toBeUndefined();
    void presence;
  });

  it('writes the record again after an outage of the store that was longer than the lease', async () => {
    const calls: Partial<StateStore> = {};
    const presence = start('a', calls);
    const fail = (): Promise<never> =>
      Promise.reject(new CloudlessError('STORE_UNAVAILABLE', 'no store'));
    await clock.advance(1_000);
    calls.get = fail;
    await clock.advance(15_000);
    expect(await readHolder()).toBeUndefined();
    delete calls.get;
    await clock.advance(3_500);
    expect(await readHolder()).toBe('a');
    await presence.close();
  });

  it('replaces the record of an earlier process with the same id', async () => {
    const calls: Partial<StateStore> = {};
    void start('a', calls);
    await clock.advance(1_000);
    calls.get = never; // the process is gone
    const next = start('b');
    await clock.advance(60_000);
    expect([await readHolder(), lines]).toEqual(['b', []]);
    await next.close();
  });

  it('reports another running process with the same id, without a fight over the record', async () => {
    const first = start('a');
    await clock.advance(1_000);
    const second = start('b');
    await clock.advance(60_000);
    expect(await readHolder()).toBe('b');
    expect(lines).toEqual([
      'another coordinator has the same id: give each coordinator a --name of its own',
    ]);
    expect(await store.revision()).toBe(2n);
    await second.close();
    await clock.advance(3_000);
    expect(await readHolder()).toBe('a');
    await first.close();
  });
});
