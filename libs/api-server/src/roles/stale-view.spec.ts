import { Code, ConnectError } from '@connectrpc/connect';
import {
  CoordinatorService,
  createCoordinatorClient,
  readErrorDetails,
  readLeaderHint,
  type CoordinatorClient,
} from '@cloudless/api';
import { createSeededRandom, silentLog } from '@cloudless/base';
import { ManualClock } from '@cloudless/base/testing';
import { FaultyProcess } from '@cloudless/cluster-state/testing';
import { Authenticator } from '../access/authenticator.js';
import { ApiTestBed } from '../testing/api-test-bed.js';
import { FollowerBed, createFakeLeader } from '../testing/follower-bed.js';
import { TestIdentity, createTokenClient } from '../testing/test-identity.js';
import { MAX_VIEW_AGE_MS } from './stale-view.js';

const web = { name: 'web', spec: { command: ['serve'], replicas: 1 } };
/** Longer than any test. */
const CUT_MS = 3_600_000;
/** After this time every read of the revision from before the cut is known to be old. */
const STALE_AFTER_MS = MAX_VIEW_AGE_MS + 2_000;

let bed: ApiTestBed;
let process: FaultyProcess;
let follower: FollowerBed;
let client: CoordinatorClient;

async function open(identity?: TestIdentity): Promise<void> {
  bed = await ApiTestBed.open(identity === undefined ? {} : { identity });
  const { clock, store } = bed;
  const random = createSeededRandom(1);
  process = new FaultyProcess({ clock, store, random, clockRate: 1, faultRatio: 0 });
  if (identity !== undefined) {
    await identity.putAuthority(bed);
    const { chainDer } = await identity.authority.issue('controller', 'c2');
    bed.connection('c2').peer = { chainDer };
  }
  follower = await run(FollowerBed.open(bed, process.store));
  follower.setLeader(createFakeLeader(bed));
  client = createCoordinatorClient(follower.transport);
}

afterEach(async () => {
  await run(follower.close());
  await bed.stop();
});

/** Runs a call while the clock goes on until the call has ended. */
async function run<Result>(call: Promise<Result>): Promise<Result> {
  let isOver = false;
  const watched = call.finally(() => (isOver = true));
  watched.catch(() => undefined);
  for (let steps = 0; !isOver && steps < 200; steps += 1) await bed.clock.advance(50);
  return watched;
}
const failureOf = (call: Promise<unknown>): Promise<ConnectError> =>
  run(call).then(
    () => Promise.reject(new Error('the call has succeeded')),
    (reason: unknown) => ConnectError.from(reason),
  );
const countWorkloads = async (options = {}): Promise<number> =>
  (await run(client.listWorkloads(options))).workloads.length;

describe('a coordinator that follows and does not reach the store', () => {
  beforeEach(() => open());

  it('answers reads from its view for some seconds, and afterwards by the leader', async () => {
    await bed.clock.advance(1_500);
    process.cut(CUT_MS);
    await bed.client.createWorkload(web);
    await bed.clock.advance(3_000);
    expect(await countWorkloads()).toBe(0);
    await bed.clock.advance(STALE_AFTER_MS);
    expect(await countWorkloads()).toBe(1);
    expect(await countWorkloads({ linearizable: true })).toBe(1);
    const { revision } = await bed.client.listWorkloads({});
    expect(await countWorkloads({ minRevision: revision })).toBe(1);
  });

  it('answers reads itself again once it reaches the store', async () => {
    process.cut(STALE_AFTER_MS);
    await bed.client.createWorkload(web);
    await bed.clock.advance(STALE_AFTER_MS + 5_000);
    follower.setLeader();
    expect(await countWorkloads()).toBe(1);
  });

  it.each<[string, () => Promise<unknown>]>([
    ['reads', () => client.listWorkloads({})],
    ['watches', () => drain(client.watchWorkloads({}))],
    ['logs', () => drain(client.streamLogs({ name: 'web' }))],
    ['commands in replicas', () => client.execCommand({ replicaId: 'r', command: ['id'] })],
    ['changes', () => client.createWorkload(web)],
  ])(
    'refuses %s as unavailable, with the reason, when it reaches no leader either',
    async (_, call) => {
      process.cut(CUT_MS);
      await bed.clock.advance(STALE_AFTER_MS);
      follower.setLeader({
        ...createFakeLeader(bed),
        connect: () => {
          throw new Error('connection refused');
        },
      });
      const startedAtMs = bed.clock.now();
      const error = await failureOf(call());
      expect(error.code).toBe(Code.Unavailable);
      expect(error.rawMessage).toMatch(
        /^this coordinator has not reached the state store for \d+ s, nor any leader; use another coordinator, or retry$/,
      );
      // Names no leader: clients go to the next of their coordinators.
      expect(readLeaderHint(error)).toEqual({});
      expect(readErrorDetails(error).metadata).toEqual({ not_started: 'true' });
      expect(bed.clock.now() - startedAtMs).toBeLessThan(1_500);
    },
  );

  it('still names the coordinators of the cluster', async () => {
    process.cut(CUT_MS);
    await bed.clock.advance(STALE_AFTER_MS);
    follower.setLeader();
    expect((await run(client.getServerInfo({}))).clusterId).toBe(bed.state.clusterId);
  });

  it('ends its watches, which continue at the leader', async () => {
    const watch = client.watchWorkloads({})[Symbol.asyncIterator]();
    await run(watch.next());
    process.cut(CUT_MS);
    await bed.client.createWorkload(web);
    const error = await failureOf(
      (async () => {
        for (;;) await watch.next();
      })(),
    );
    expect(error.rawMessage).toMatch(
      /has not reached the state store for 5 s, so the stream ended/,
    );
    expect(error.code).toBe(Code.Unavailable);
    expect(readLeaderHint(error)).toEqual({});
    expect(readErrorDetails(error).metadata).not.toHaveProperty('not_started');
    const next = client.watchWorkloads({})[Symbol.asyncIterator]();
    expect((await run(next.next())).value?.workload?.name).toBe('web');
    await next.return?.();
  });
});

describe('a credential at a coordinator that does not reach the store', () => {
  let identity: TestIdentity;
  beforeAll(async () => {
    identity = await TestIdentity.create(new ManualClock().wallTime());
  });
  beforeEach(() => open(identity));

  it('is refused when it was revoked meanwhile', async () => {
    const token = await identity.putUser(bed, 'ada', [{ role: 'admin', namespace: '' }]);
    const ada = createTokenClient(follower, CoordinatorService, token);
    await bed.clock.advance(100);
    expect((await run(ada.listWorkloads({}))).workloads).toEqual([]);
    process.cut(CUT_MS);
    await bed.state.commit(bed.state.transaction().delete('user', 'ada'));
    await bed.clock.advance(STALE_AFTER_MS);
    expect((await failureOf(ada.listWorkloads({}))).code).toBe(Code.Unauthenticated);
    follower.setLeader();
    expect((await failureOf(ada.listWorkloads({}))).code).toBe(Code.Unavailable);
  });

  it('is not called invalid when it may have been created meanwhile', async () => {
    process.cut(CUT_MS);
    const token = await identity.putUser(bed, 'ada', [{ role: 'admin', namespace: '' }]);
    const ada = createTokenClient(follower, CoordinatorService, token);
    await bed.clock.advance(STALE_AFTER_MS);
    const error = await failureOf(ada.listWorkloads({}));
    expect(error.code).toBe(Code.Unavailable);
    expect(error.rawMessage).toContain('so it cannot check the credential');
    expect(readLeaderHint(error)).toEqual({});
  });

  it('has no audit record of a refusal that a newer view may contradict', async () => {
    const recorded: string[] = [];
    const authenticator = new Authenticator({
      ...{ state: follower.state, clock: bed.clock, identity, log: silentLog },
      reportRefusal: async ({ audit }) => void recorded.push(audit?.cause ?? ''),
    });
    const authorize = (authorization: string): unknown =>
      authenticator.authorize({
        method: CoordinatorService.method.listNodes,
        connection: undefined,
        header: new Headers({ authorization }),
      });
    const guess = 'Bearer clu1.unknown.unknown';
    expect(() => authorize(guess)).toThrow('token');
    const before = [...recorded];
    expect(before).toHaveLength(1);
    process.cut(CUT_MS);
    await bed.clock.advance(STALE_AFTER_MS);
    expect(() => authorize(guess)).toThrow('so it cannot check the credential');
    expect(recorded).toEqual(before);
    authenticator.close();
  });

  it('gets no metrics', async () => {
    const token = await identity.putUser(bed, 'ada', [{ role: 'admin', namespace: '' }]);
    await bed.clock.advance(100);
    const authorize = (): unknown =>
      follower.authenticator?.authorize({
        method: CoordinatorService.method.listNodes,
        connection: undefined,
        header: new Headers({ authorization: `Bearer ${token}` }),
        isServedHere: true,
      });
    expect(authorize).not.toThrow();
    process.cut(CUT_MS);
    await bed.clock.advance(STALE_AFTER_MS);
    expect(authorize).toThrow('so it cannot check the credential');
  });
});

async function drain(items: AsyncIterable<unknown>): Promise<void> {
  for await (const item of items) void item;
}
