import { create } from '@bufbuild/protobuf';
import { CoordinatorRecordSchema } from '@cloudless/api/store';
import { createSeededRandom, silentLog, sleep } from '@cloudless/base';
import { ManualClock } from '@cloudless/base/testing';
import { createMemoryStateStore, type StateStore } from '@cloudless/state-store';
import {
  findNextInLine,
  openClusterState,
  type ClusterState,
  type LeaderElection,
} from '../index.js';
import { encodeRecord, toKey } from '../records/records.js';

/** Time of each call of the store, milliseconds. */
const ROUND_TRIP_MS = 1_000 / 128;
const SLOW_CALLS = new Set(['get', 'txn', 'revision', 'grantLease', 'keepAlive', 'revokeLease']);

let clock: ManualClock;
let store: StateStore;
let opened: ClusterState[];

beforeEach(() => {
  clock = new ManualClock();
  store = createMemoryStateStore({ clock });
  opened = [];
});
afterEach(async () => {
  const closing = Promise.all(opened.map((state) => state.close()));
  await clock.advance(10_000);
  await closing;
  await store.close();
});

interface Member {
  readonly state: ClusterState;
  readonly election: LeaderElection;
  /** Calls of the store, in order. */
  readonly calls: string[];
}

/** A coordinator whose calls of the store each take {@link ROUND_TRIP_MS}. */
async function aMember(id: string): Promise<Member> {
  const calls: string[] = [];
  const slow = new Proxy(store, {
    get: (target, name) => {
      const value: unknown = Reflect.get(target, name);
      if (typeof value !== 'function') return value;
      const call = value.bind(target) as (...parameters: unknown[]) => unknown;
      if (!SLOW_CALLS.has(String(name))) return call;
      return async (...parameters: unknown[]) => {
        calls.push(String(name));
        await sleep(clock, ROUND_TRIP_MS);
        return call(...parameters);
      };
    },
  });
  const opening = openClusterState({
    ...{ store: slow, clock, random: createSeededRandom(7), log: silentLog },
    ...{ holder: `${id}/1`, leadership: 'follow' },
  });
  await clock.advance(1_000);
  const state = await opening;
  opened.push(state);
  const election = state.joinElection({ address: `http://${id}`, coordinatorId: id });
  return { state, election, calls };
}

async function announce(...ids: readonly string[]): Promise<void> {
  for (const id of ids) {
    const { bytes } = encodeRecord('coordinator', create(CoordinatorRecordSchema, { id }));
    await store.txn([], [{ put: toKey('coordinator', id), value: bytes }]);
  }
}

/** Waits until a member leads; returns the milliseconds. */
async function waitUntilLeading({ state }: Member): Promise<number> {
  const fromMs = clock.now();
  while (!state.isLeading) {
    if (clock.now() > fromMs + 5_000) throw new Error('does not lead');
    await clock.advance(ROUND_TRIP_MS / 4);
  }
  return clock.now() - fromMs;
}

describe('a hand-over', () => {
  it('takes three round trips in all when the successor is known', async () => {
    const [leader, next] = [await aMember('c2'), await aMember('c1')];
    if (!leader.state.isLeading) throw new Error('c2 does not lead');
    await announce('c1', 'c2');
    await clock.advance(100);
    next.calls.length = 0;
    void leader.election.stepDown();
    // The lease is revoked; then a lease and the newest revision at once; then the transaction.
    expect(await waitUntilLeading(next)).toBe(3 * ROUND_TRIP_MS);
    expect(next.calls.filter((call) => call !== 'get')).toEqual(['grantLease', 'revision', 'txn']);
  });

  it('goes to another coordinator when the next in line does not campaign', async () => {
    const [leader, other] = [await aMember('c2'), await aMember('c3')];
    await announce('c1', 'c2', 'c3'); // c1 has died
    await clock.advance(100);
    void leader.election.stepDown();
    expect(await waitUntilLeading(other)).toBeLessThan(100 + 4 * ROUND_TRIP_MS);
  });

  it('leads once when two coordinators believe to be the next in line', async () => {
    const leader = await aMember('c2');
    const twins = [await aMember('c1'), await aMember('c1')] as const;
    await announce('c1', 'c2');
    await clock.advance(100);
    void leader.election.stepDown();
    await clock.advance(1_000);
    expect(twins.map(({ state }) => state.isLeading).sort()).toEqual([false, true]);
    expect(Math.max(...twins.map(({ state }) => Number(state.epoch)))).toBe(2);
    // Also the lease of the one that lost is gone: its record would keep nobody out, but cost.
    const loser = twins.find(({ state }) => !state.isLeading);
    expect(loser?.calls).toContain('revokeLease');
  });
});

describe('findNextInLine', () => {
  const view = (...ids: readonly string[]) => ({
    coordinators: () =>
      ids.map((id) => ({ value: create(CoordinatorRecordSchema, { id }), revision: 1n })),
  });

  it.each([
    { ids: [], leader: 'c1', next: undefined },
    { ids: ['c1'], leader: 'c1', next: undefined },
    { ids: ['c3', 'c1', 'c2'], leader: 'c1', next: 'c2' },
    { ids: ['c3', 'c1', 'c2'], leader: 'c2', next: 'c1' },
    { ids: ['c3', 'c2'], leader: undefined, next: 'c2' },
  ])('of $ids without the leader $leader is $next', ({ ids, leader, next }) => {
    expect(findNextInLine(view(...ids), leader)?.id).toBe(next);
  });
});
