import { create } from '@bufbuild/protobuf';
import { createRouterTransport } from '@connectrpc/connect';
import {
  CoordinatorService,
  WorkloadSchema,
  createCoordinatorClient,
  createErrorInterceptor,
  type CoordinatorClient,
} from '@cloudless/api';
import { CoordinatorRecordSchema } from '@cloudless/api/store';
import { createLeaderDirectory } from '@cloudless/api-server';
import { createSeededRandom, silentLog } from '@cloudless/base';
import { ManualClock } from '@cloudless/base/testing';
import { openClusterState, type ClusterState } from '@cloudless/cluster-state';
import { createMemoryStateStore, type StateStore } from '@cloudless/state-store';
import type { LeaderPart } from '../leader-part.js';
import type { FollowerPart } from './follower-part.js';
import { RoleSwitch } from './role-switch.js';

const SERVE_BOTH = ['createWorkload', 'getWorkload'] as const;

/** The clock of a machine that can sleep: time has passed, and no timer has fired yet. */
class SleepyClock extends ManualClock {
  private sleptMs = 0;

  override now(): number {
    return super.now() + this.sleptMs;
  }

  sleep(durationMs: number): void {
    this.sleptMs += durationMs;
  }
}

/** A coordinator in the election, whose parts answer each call with their own name. */
class SwitchBed {
  /** The parts in the order of their opening. */
  readonly opened: string[] = [];
  readonly closed: string[] = [];
  /** Runs while a leader part is built. */
  onOpenLeader: (state: ClusterState) => void = () => undefined;
  onOpenFollower: () => void = () => undefined;
  /** Addresses to which the coordinator has connected. */
  readonly connected: string[] = [];
  /** The promise that the close of a leader part waits for. */
  closing: Promise<void> = Promise.resolve();
  readonly roles: RoleSwitch;
  readonly client: CoordinatorClient;
  private followers = 0;

  private constructor(
    readonly clock: ManualClock,
    readonly state: ClusterState,
    readonly election: ReturnType<ClusterState['joinElection']>,
  ) {
    this.roles = new RoleSwitch({
      ...{ state, election, coordinatorId: 'c1', term: undefined },
      machine: { clock, log: silentLog },
      leaders: createLeaderDirectory(state),
      connections: {
        connect: ({ address }) => {
          this.connected.push(address);
          return Promise.reject(new Error('connection refused'));
        },
      },
      openLeader: (leading) => this.openLeader(leading),
      openFollower: () => this.openFollower(),
    });
    this.client = createCoordinatorClient(
      createRouterTransport(this.roles.router.registerRoutes, {
        router: { interceptors: [createErrorInterceptor(() => undefined)] },
      }),
    );
  }

  static async open(clock: ManualClock, store: StateStore): Promise<SwitchBed> {
    const state = await openClusterState({
      ...{ store, clock, random: createSeededRandom(1), log: silentLog },
      ...{ holder: 'c1/1', leadership: 'follow' },
    });
    const election = state.joinElection({ address: 'http://c1', coordinatorId: 'c1' });
    return new SwitchBed(clock, state, election);
  }

  /** The role, and the parts that answer changes and reads; `held` for a call that waits. */
  async look(): Promise<{ role: string | undefined; change: string; read: string }> {
    const stop = new AbortController();
    const options = { signal: stop.signal };
    const answers = SERVE_BOTH.map((call) =>
      this.client[call]({ name: 'web' }, options).then(
        ({ name }) => name,
        () => 'held',
      ),
    );
    await this.clock.advance(0);
    stop.abort();
    const [change = '', read = ''] = await Promise.all(answers);
    const { part } = this.roles;
    return { role: part && 'role' in part ? 'follower' : part && 'leader', change, read };
  }

  async waitForTerm(epoch: bigint): Promise<void> {
    for (let waitedMs = 0; this.state.epoch < epoch; waitedMs += 10) {
      if (waitedMs > 5_000) throw new Error(`no term ${epoch}`);
      await this.clock.advance(10);
    }
  }

  async close(): Promise<void> {
    const closed = this.roles.close().then(() => this.state.close());
    await this.clock.advance(10_000);
    await closed;
  }

  private openLeader(state: ClusterState): LeaderPart {
    const name = `leader ${state.epoch}`;
    this.opened.push(name);
    this.onOpenLeader(state);
    const part = {
      ...{ state, api: { calls: createCalls(name) } },
      listWarnings: () => [],
      close: () => {
        this.closed.push(name);
        return this.closing;
      },
    };
    return part as unknown as LeaderPart;
  }

  private openFollower(): FollowerPart {
    const name = `follower ${(this.followers += 1)}`;
    this.onOpenFollower();
    this.opened.push(name);
    const close = (): void => void this.closed.push(name);
    const calls = createCalls(name);
    return { role: 'follower', calls, nodes: { aliveCount: 0 }, listWarnings: () => [], close };
  }
}

const createCalls = (name: string): FollowerPart['calls'] =>
  new Map(
    SERVE_BOTH.map((call) => [
      CoordinatorService.method[call],
      () => Promise.resolve(create(WorkloadSchema, { name })),
    ]),
  );

let clock: SleepyClock;
let store: StateStore;
let bed: SwitchBed;
beforeEach(async () => {
  clock = new SleepyClock();
  store = createMemoryStateStore({ clock });
  bed = await SwitchBed.open(clock, store);
});
afterEach(async () => {
  await bed.close();
  await store.close();
});

const follows = (number: number) => ({
  ...{ role: 'follower', change: 'held', read: `follower ${number}` },
});
const leads = (epoch: number) => ({
  ...{ role: 'leader', change: `leader ${epoch}`, read: `leader ${epoch}` },
});

describe('the role switch', () => {
  it('serves by the part of each role, with one part open at a time', async () => {
    expect(await bed.look()).toEqual(follows(1));
    await bed.waitForTerm(1n);
    expect(await bed.look()).toEqual(leads(1));
    await bed.election.stepDown();
    expect(await bed.look()).toEqual(follows(2));
    expect(bed.opened).toEqual(['follower 1', 'leader 1', 'follower 2']);
    expect(bed.closed).toEqual(['follower 1', 'leader 1']);
  });

  it.each([
    {
      how: 'with a report of its end',
      end: () => void bed.election.stepDown(),
    },
    {
      how: 'by the clock, which is reported later',
      end: () => clock.sleep(4_000),
    },
  ])('goes on following when a term ends while its part is built, $how', async ({ end }) => {
    bed.onOpenLeader = () => {
      bed.onOpenLeader = () => undefined;
      end();
    };
    await bed.waitForTerm(1n);
    expect(await bed.look()).toEqual(follows(1));
    expect(bed.closed).toEqual(['leader 1']);
    await bed.waitForTerm(2n);
    expect(await bed.look()).toEqual(leads(2));
    expect(bed.closed).toEqual(['leader 1', 'follower 1']);
  });

  it('leads in a new term while the part of the old one is closing', async () => {
    let finish = (): void => undefined;
    await bed.waitForTerm(1n);
    bed.closing = new Promise((resolve) => (finish = resolve));
    await bed.election.stepDown();
    await bed.waitForTerm(2n);
    expect(await bed.look()).toEqual(leads(2));
    bed.closing = Promise.resolve();
    let isClosed = false;
    const closed = bed.roles.close().then(() => (isClosed = true));
    await clock.advance(0);
    expect(isClosed).toBe(false); // the part of term 1 may still write to its log and its sessions
    finish();
    await closed;
    expect(bed.closed).toEqual(['follower 1', 'leader 1', 'follower 2', 'leader 2']);
  });

  it('steps down when the leader part cannot be built, and leads when it can be', async () => {
    bed.onOpenLeader = () => {
      throw new Error('out of file descriptors');
    };
    await bed.waitForTerm(1n);
    expect(bed.state.isLeading).toBe(false);
    expect(await bed.look()).toEqual(follows(1));
    await clock.advance(100);
    expect(await store.get('/leaderlease/leader')).toBeUndefined(); // another coordinator may lead
    bed.onOpenLeader = () => undefined;
    await bed.waitForTerm(2n);
    expect(await bed.look()).toEqual(leads(2));
    expect(bed.closed).toEqual(['follower 1']);
  });

  it('forwards all calls when the follower part cannot be built, and leads again', async () => {
    await bed.waitForTerm(1n);
    bed.onOpenFollower = () => {
      throw new Error('out of memory');
    };
    await bed.election.stepDown();
    expect(await bed.look()).toEqual({ role: undefined, change: 'held', read: 'held' });
    expect(bed.closed).toEqual(['follower 1', 'leader 1']);
    await bed.waitForTerm(2n);
    expect(await bed.look()).toEqual(leads(2));
  });

  it('serves held changes again after a hand-over that finds no successor', async () => {
    await bed.waitForTerm(1n);
    const handedOver = bed.roles.handOver();
    await clock.advance(1_100);
    expect(await handedOver).toBeUndefined();
    const held = bed.client.createWorkload({ name: 'web' });
    await bed.waitForTerm(2n);
    await clock.advance(0);
    expect((await held).name).toBe('leader 2');
  });

  it('connects to the next in line before a hand-over revokes the lease', async () => {
    await bed.waitForTerm(1n);
    for (const id of ['c3', 'c1', 'c2']) {
      const record = create(CoordinatorRecordSchema, { id, address: `http://${id}` });
      await bed.state.commit(bed.state.transaction().put('coordinator', id, record));
    }
    const handedOver = bed.roles.handOver();
    expect(bed.connected).toEqual(['http://c2']);
    expect(bed.state.isLeading).toBe(true);
    await clock.advance(1_100);
    await handedOver;
  });

  it('opens no part for a term that begins after its close', async () => {
    await bed.roles.close();
    await bed.waitForTerm(1n);
    expect(bed.opened).toEqual(['follower 1']);
  });
});
