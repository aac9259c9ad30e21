import { create } from '@bufbuild/protobuf';
import { jest } from '@jest/globals';
import { NodeRecordSchema } from '@cloudless/api/store';
import { CloudlessError, createSeededRandom, silentLog } from '@cloudless/base';
import { ManualClock, RecordingMeter } from '@cloudless/base/testing';
import { createMemoryStateStore, type StateStore } from '@cloudless/state-store';
import {
  LeadershipLostError,
  NotLeaderError,
  Transaction,
  openClusterState,
  type ClusterState,
  type LeaderElection,
  type LeadershipTerm,
} from '../index.js';
import { toKey } from '../records/records.js';

const LEASE_RECORD = toKey('leaderlease', 'leader');

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

/** A coordinator that takes part in the election, with the calls of its store replaced. */
interface Candidate {
  readonly state: ClusterState;
  readonly election: LeaderElection;
  readonly calls: Partial<StateStore>;
  readonly terms: LeadershipTerm[];
  readonly meter: RecordingMeter;
}

async function aCandidate(id: string, calls: Partial<StateStore> = {}): Promise<Candidate> {
  const meter = new RecordingMeter();
  const state = await openClusterState({
    store: new Proxy(store, {
      get: (target, name) => {
        const value: unknown = Reflect.get(calls, name) ?? Reflect.get(target, name);
        return typeof value === 'function' ? value.bind(target) : value;
      },
    }),
    ...{ clock, meter, log: silentLog, holder: `${id}/1`, leadership: 'follow' },
    random: createSeededRandom(id.charCodeAt(id.length - 1)),
  });
  opened.push(state);
  const terms: LeadershipTerm[] = [];
  state.onRoleChange((change) => {
    if (change.role === 'leader') terms.push(change.term);
  });
  const election = state.joinElection({ address: `https://${id}:8080`, coordinatorId: id });
  return { state, election, calls, terms, meter };
}

const candidates = (count: number): Promise<Candidate[]> =>
  Promise.all(Array.from({ length: count }, (_, index) => aCandidate(`c${index + 1}`)));

/** Waits for a leader among the candidates. */
async function waitForLeader(among: readonly Candidate[], limitMs = 5_000): Promise<Candidate> {
  const endAtMs = clock.now() + limitMs;
  for (;;) {
    const leader = among.find(({ state }) => state.isLeading);
    if (leader !== undefined) return leader;
    if (clock.now() >= endAtMs) throw new Error(`no candidate leads after ${limitMs} ms`);
    await clock.advance(10);
  }
}
const others = (all: readonly Candidate[], one: Candidate): Candidate[] =>
  all.filter((candidate) => candidate !== one);
const putNode = (state: ClusterState, id: string): Promise<unknown> =>
  state.commit(state.transaction().put('node', id, create(NodeRecordSchema, { id })));
const never = (): Promise<never> => new Promise(() => undefined);
const fail = (): Promise<never> =>
  Promise.reject(new CloudlessError('STORE_UNAVAILABLE', 'no store'));

/** A watch that loses the deletion of a leader lease, as a bug of the store may. */
const watchWithoutDeletions: StateStore['watch'] = async function* (request) {
  for await (const { changes, revision } of store.watch(request)) {
    const kept = changes.filter((change) => change.kind === 'put' || change.key !== LEASE_RECORD);
    yield { changes: kept, revision };
  }
};

/** A watch that shows only the first lease record and nothing later. */
const watchNothing: StateStore['watch'] = async function* (request) {
  let isSilent = false;
  for await (const batch of store.watch(request)) {
    if (!isSilent) yield batch;
    isSilent ||= batch.changes.some(
      (change) => change.kind === 'put' && change.entry.key === LEASE_RECORD,
    );
  }
};

describe('an election', () => {
  it('makes one of three coordinators the leader, whose address all of them know', async () => {
    const all = await candidates(3);
    const leader = await waitForLeader(all);
    await clock.advance(10_000);
    expect(all.filter(({ state }) => state.role === 'leader')).toEqual([leader]);
    const id = leader.state.leader()!.coordinatorId;
    for (const { state } of all)
      expect(state.leader()).toEqual({
        epoch: leader.state.epoch,
        address: `https://${id}:8080`,
        coordinatorId: id,
      });
    expect(all.flatMap(({ terms }) => terms)).toHaveLength(1);
  });

  it('gives the leadership to another coordinator within lease and jitter after the leader has died', async () => {
    const all = await candidates(3);
    const leader = await waitForLeader(all);
    Object.assign(leader.calls, { keepAlive: never, txn: never, revokeLease: never });
    const rest = others(all, leader);
    const diedAtMs = clock.now();
    const next = await waitForLeader(rest, 2_000 + 100 + 50);
    expect(clock.now() - diedAtMs).toBeGreaterThan(1_400);
    expect(next.state.epoch).toBe(leader.state.epoch + 1n);
    await putNode(next.state, 'n');
    expect(leader.state.isLeading).toBe(false);
  });

  it('ends the term 1.5 s after the last answered renewal was sent, before the lease ends', async () => {
    const leader = await waitForLeader([await aCandidate('c1')]);
    await clock.advance(3_000);
    const term = leader.terms[0]!;
    const sent: number[] = [];
    leader.calls.keepAlive = (lease) => {
      sent.push(clock.now());
      // The store renews the lease, and its answer is lost.
      return sent.length === 1 ? store.keepAlive(lease) : store.keepAlive(lease).then(never);
    };
    await clock.advance(500);
    expect(sent).toHaveLength(1);
    leader.calls.revokeLease = never;
    await clock.advance(sent[0]! + 1_499 - clock.now());
    expect([sent.length, term.isActive]).toEqual([2, true]); // one renewal in flight
    await clock.advance(1);
    expect(term.isActive).toBe(false);
    expect(term.signal.reason).toBeInstanceOf(LeadershipLostError);
    expect(await store.get(LEASE_RECORD)).toBeDefined();
  });

  it('does not lead a moment longer when the process was paused beyond its lease', async () => {
    const leader = await waitForLeader([await aCandidate('c1')]);
    const before = leader.state.transaction();
    const now = jest.spyOn(clock, 'now').mockReturnValue(clock.now() + 60_000);
    // No timer has fired yet: the process has only just woken up.
    expect([leader.state.isLeading, leader.state.role]).toEqual([false, 'follower']);
    await expect(leader.state.commit(before)).rejects.toBeInstanceOf(LeadershipLostError);
    now.mockRestore();
    expect(leader.state.isLeading).toBe(false);
  });

  it('keeps the leader through failed renewals, and counts them', async () => {
    const leader = await waitForLeader([await aCandidate('c1')]);
    leader.calls.keepAlive = fail;
    await clock.advance(1_000);
    delete leader.calls.keepAlive;
    await clock.advance(5_000);
    expect(leader.terms).toHaveLength(1);
    expect(leader.state.isLeading).toBe(true);
    const failed = { result: 'failed' };
    expect(await leader.meter.read('cloudless_leadership_renewals_total', failed)).toBeGreaterThan(
      3,
    );
    expect(await leader.meter.read('cloudless_leadership_is_leader')).toBe(1);
  });

  it('ends the term when the lease has ended in the store, and elects again', async () => {
    const leader = await waitForLeader([await aCandidate('c1')]);
    const { lease } = (await store.get(LEASE_RECORD))!;
    await store.revokeLease(lease!);
    await clock.advance(0);
    expect(leader.terms[0]!.isActive).toBe(false);
    await waitForLeader([leader]);
    expect(leader.terms.map(({ epoch }) => epoch)).toEqual([1n, 2n]);
  });

  it('reads the lease from the store when the watch has lost its deletion', async () => {
    const leader = await waitForLeader([await aCandidate('c1')]);
    const follower = await aCandidate('c2', { watch: watchWithoutDeletions });
    const { lease } = (await store.get(LEASE_RECORD))!;
    leader.calls.grantLease = fail;
    await store.revokeLease(lease!);
    const next = await waitForLeader([follower], 5_000);
    expect(next.state.epoch).toBe(2n);
    expect(next.state.leader()).toMatchObject({ coordinatorId: 'c2' });
  });
});

describe('stepDown', () => {
  it('ends the term at once, hands over within 150 ms, and keeps the coordinator out for 2 s', async () => {
    const all = await candidates(3);
    const leader = await waitForLeader(all);
    const stepped = leader.election.stepDown();
    expect(leader.state.isLeading).toBe(false);
    expect(await stepped).toBe(true);
    const next = await waitForLeader(others(all, leader), 150);
    expect(next).not.toBe(leader);
    const again = await next.election.stepDown();
    expect(again).toBe(true);
    expect(await waitForLeader(others(all, next), 150)).not.toBe(leader);
  });

  it('lets a lone coordinator lead again after 2 s, in a new term', async () => {
    const leader = await waitForLeader([await aCandidate('c1')]);
    await leader.election.stepDown();
    await clock.advance(1_999);
    expect(leader.state.isLeading).toBe(false);
    await clock.advance(200);
    expect(leader.state.isLeading).toBe(true);
    expect(leader.terms).toHaveLength(2);
  });

  it('hands over at once also while the term begins', async () => {
    const first = await aCandidate('c1');
    first.state.onRoleChange(({ role }) => {
      if (role === 'leader') void first.election.stepDown();
    });
    while (first.terms.length === 0) await clock.advance(10);
    expect(await store.get(LEASE_RECORD)).toBeUndefined();
    const second = await waitForLeader([await aCandidate('c2')], 150);
    expect(second.state.epoch).toBe(2n);
  });

  it('does nothing on a follower, except that the follower does not campaign for 2 s', async () => {
    const all = await candidates(2);
    const leader = await waitForLeader(all);
    const [follower] = others(all, leader) as [Candidate];
    expect(await follower.election.stepDown()).toBe(false);
    expect(leader.state.isLeading).toBe(true);
  });
});

describe('a term', () => {
  it('refuses its commits after its end, also when the coordinator leads again', async () => {
    const leader = await waitForLeader([await aCandidate('c1')]);
    const { state } = leader;
    const bound = state.inTerm(leader.terms[0]!);
    const planned = bound.transaction().put('node', 'n', create(NodeRecordSchema, { id: 'n' }));
    const reasons: unknown[] = [];
    bound.onLeadershipLost((reason) => reasons.push(reason));
    await leader.election.stepDown();
    await waitForLeader([leader]);
    expect([state.epoch, bound.epoch, bound.isLeading]).toEqual([2n, 1n, false]);
    for (const transaction of [planned, bound.transaction()]) {
      await expect(bound.commit(transaction)).rejects.toBeInstanceOf(LeadershipLostError);
      await expect(state.commit(transaction)).rejects.toBeInstanceOf(LeadershipLostError);
    }
    expect(reasons).toEqual([expect.any(LeadershipLostError)]);
    await putNode(state, 'fine');
    expect([...state.view().nodes()].map(({ value }) => value.id)).toEqual(['fine']);
  });
});

describe('every commit', () => {
  it('requires the leader record of its term, also with no other condition, and is refused without a term', async () => {
    const leader = await waitForLeader([await aCandidate('c1')]);
    const { state } = leader;
    const record = await store.get(toKey('leader', 'leader'));
    const compared: unknown[] = [];
    leader.calls.txn = (compares, operations) => {
      compared.push(compares);
      return store.txn(compares, operations);
    };
    await state.commit(state.transaction().event({ reason: 'Tested' }));
    await state.commitObserved(state.transaction().delete('node', 'n'));
    const fence = { key: record!.key, is: record!.modRevision };
    expect(compared).toEqual([[fence], [fence]]);
    const free = new Transaction({ nextId: () => '1', nowMs: () => 0 });
    await expect(state.commit(free.delete('node', 'n'))).rejects.toBeInstanceOf(NotLeaderError);
    expect(compared).toHaveLength(2);
  });
});

describe('a campaign whose transaction has no answer', () => {
  /** Replaces the next campaign transaction of a candidate. */
  function replaceNext(
    calls: Partial<StateStore>,
    replacement: (commit: () => Promise<unknown>) => Promise<never>,
  ): void {
    calls.txn = (compares, operations) => {
      delete calls.txn;
      return replacement(() => store.txn(compares, operations));
    };
  }

  it('makes the coordinator the leader when the store has committed it', async () => {
    const candidate = await aCandidate('c1');
    replaceNext(candidate.calls, (commit) => commit().then(fail));
    await waitForLeader([candidate], 200);
    expect(candidate.state.epoch).toBe(1n);
    await putNode(candidate.state, 'n');
    await clock.advance(5_000);
    expect(candidate.terms).toHaveLength(1);
  });

  it('is repeated with another lease when the store has not committed it', async () => {
    const candidate = await aCandidate('c1');
    replaceNext(candidate.calls, fail);
    await waitForLeader([candidate]);
    expect(candidate.state.epoch).toBe(1n);
    await clock.advance(5_000);
    expect(candidate.terms).toHaveLength(1);
  });

  it('cannot be committed later: its lease has been revoked', async () => {
    const candidate = await aCandidate('c1');
    let commitLate = (): Promise<unknown> => Promise.resolve();
    replaceNext(candidate.calls, (commit) => {
      commitLate = commit;
      return fail();
    });
    await waitForLeader([candidate]);
    await expect(commitLate()).rejects.toThrow();
    await candidate.election.close();
    await expect(commitLate()).rejects.toMatchObject({
      kind: expect.stringMatching(/conflict|notFound/),
    });
    expect(await store.get(LEASE_RECORD)).toBeUndefined();
  });
});

describe('an agent that holds a newer epoch', () => {
  const held = { nodeId: 'n', epoch: 2n, orderRevision: 0n };

  it('shows the leader that it was deposed, when the store has a newer leader', async () => {
    const leader = await waitForLeader([await aCandidate('c1', { watch: watchNothing })]);
    const { lease } = (await store.get(LEASE_RECORD))!;
    await store.revokeLease(lease!);
    const next = await waitForLeader([await aCandidate('c2')]);
    expect(leader.state.isLeading).toBe(true);
    leader.state.reportNewerState(held);
    await clock.advance(0);
    expect([leader.state.isLeading, next.state.isLeading]).toEqual([false, true]);
    expect(leader.state.storeRolledBack).toBeUndefined();
  });

  it('proves that the store went back in time, when the store has no newer leader', async () => {
    const leader = await waitForLeader([await aCandidate('c1')]);
    const follower = await aCandidate('c2');
    follower.state.reportNewerState(held);
    await clock.advance(0);
    expect(follower.state.storeRolledBack).toBeUndefined();
    leader.state.reportNewerState(held);
    await clock.advance(0);
    expect(leader.state.storeRolledBack).toMatchObject({ nodeId: 'n', highestEpoch: 2n });
    expect(follower.state.storeRolledBack).toMatchObject({ nodeId: 'n', highestEpoch: 2n });
    const accepted = await leader.state.acceptRestoredState();
    await clock.advance(1_000);
    const epoch = accepted!.epoch;
    expect([leader.state.epoch, leader.state.isLeading]).toEqual([epoch, true]);
    expect(follower.state.leader()).toEqual({
      ...{ epoch, address: 'https://c1:8080', coordinatorId: 'c1' },
    });
    await leader.election.stepDown();
    const next = await waitForLeader([follower]);
    expect(next.state.epoch).toBe(epoch + 1n);
  });
});
