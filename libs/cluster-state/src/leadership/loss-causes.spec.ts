import { create } from '@bufbuild/protobuf';
import { jest } from '@jest/globals';
import { NodeRecordSchema } from '@cloudless/api/store';
import {
  CloudlessError,
  createSeededRandom,
  silentLog,
  type Log,
  type LogFields,
} from '@cloudless/base';
import { ManualClock } from '@cloudless/base/testing';
import { createMemoryStateStore, type StateStore } from '@cloudless/state-store';
import { openClusterState, type ClusterState, type LeaderElection } from '../index.js';
import { encodeRecord, toKey, decodeRecord } from '../records/records.js';

/** A coordinator that leads, with what it logs and the causes that its listeners receive. */
class Leader {
  readonly clock = new ManualClock();
  readonly store = createMemoryStateStore({ clock: this.clock });
  /** Replace calls of the store. */
  readonly calls: Partial<StateStore> = {};
  readonly logged: (LogFields | undefined)[] = [];
  readonly causes: unknown[] = [];
  election!: LeaderElection;
  state!: ClusterState;

  async start(): Promise<this> {
    const log: Log = {
      ...silentLog,
      warn: (message, fields) => {
        if (message === 'leadership lost') this.logged.push(fields);
      },
      child: () => log,
    };
    this.state = await openClusterState({
      store: new Proxy(this.store, {
        get: (target, name) => {
          const value: unknown = Reflect.get(this.calls, name) ?? Reflect.get(target, name);
          return typeof value === 'function' ? value.bind(target) : value;
        },
      }),
      ...{ clock: this.clock, log, holder: 'c1/1', leadership: 'follow' },
      random: createSeededRandom(1),
    });
    this.state.onRoleChange((change) => {
      if (change.role === 'follower') this.causes.push(change.reason.cause);
    });
    this.election = this.state.joinElection({ address: 'https://c1', coordinatorId: 'c1' });
    await this.clock.advance(3_000);
    expect(this.state.isLeading).toBe(true);
    return this;
  }

  async close(): Promise<void> {
    const closing = this.state.close();
    await this.clock.advance(10_000);
    await closing;
    await this.store.close();
  }

  commit(): Promise<unknown> {
    const record = create(NodeRecordSchema, { id: 'n' });
    return this.state.commit(this.state.transaction().put('node', 'n', record));
  }
}

const never = <Result>(): Promise<Result> => new Promise(() => undefined);

describe('The log and the listeners of a lost leadership name the cause', () => {
  it.each<{ name: string; lose: (leader: Leader) => Promise<unknown>; cause: RegExp }>([
    {
      name: 'a renewal that the store does not answer',
      lose: async ({ calls, clock }) => {
        calls.keepAlive = never;
        await clock.advance(2_000);
      },
      cause:
        /^no renewal of the leader lease was confirmed for 1500 ms \(limit 1500 ms\); the newest was sent 1000 ms ago and is not answered$/,
    },
    {
      name: 'renewals that fail',
      lose: async ({ calls, clock }) => {
        calls.keepAlive = () => Promise.reject(new CloudlessError('unavailable', 'no majority'));
        await clock.advance(2_000);
      },
      cause: /confirmed for 1500 ms \(limit 1500 ms\); the newest was sent \d+ ms ago and failed$/,
    },
    {
      name: 'a process that did not run, noticed by a commit',
      lose: async (leader) => {
        const { clock } = leader;
        const now = jest.spyOn(clock, 'now').mockReturnValue(clock.now() + 60_000);
        await leader.commit().catch(() => undefined);
        now.mockRestore();
      },
      cause:
        /confirmed for 60\d\d\d ms .*; none was sent, because this process did not run in time$/,
    },
    {
      name: 'a lease that has ended in the store',
      lose: async ({ store, clock }) => {
        const entry = await store.get(toKey('leaderlease', 'leader'));
        await store.revokeLease(entry!.lease!);
        await clock.advance(10);
      },
      cause: /^the lease of the leader has ended in the store, 1\d\d\d ms before the limit of this/,
    },
    {
      name: 'another coordinator',
      lose: async ({ store, clock }) => {
        const key = toKey('leader', 'leader');
        const own = decodeRecord('leader', 'leader', (await store.get(key))!.value);
        const value = encodeRecord('leader', { ...own, epoch: 9n, coordinatorId: 'c2' }).bytes;
        await store.txn([], [{ put: key, value }]);
        await clock.advance(10);
      },
      cause: /^coordinator c2 leads with epoch 9$/,
    },
    {
      name: 'a step-down',
      lose: ({ election }) => election.stepDown(),
      cause: /^the coordinator stepped down$/,
    },
  ])('of $name', async ({ lose, cause }) => {
    const leader = await new Leader().start();
    await lose(leader);
    expect(leader.logged).toEqual([
      expect.objectContaining({ epoch: 1n, cause: expect.stringMatching(cause) }),
    ]);
    expect(leader.causes).toEqual([
      expect.objectContaining({ message: expect.stringMatching(cause) }),
    ]);
    await leader.close();
  });
});
