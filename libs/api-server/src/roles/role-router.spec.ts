import { create, toBinary } from '@bufbuild/protobuf';
import { Code, ConnectError, type Transport } from '@connectrpc/connect';
import {
  createCoordinatorClient,
  fromConnectError,
  readErrorDetails,
  readLeaderHint,
  toConnectError,
  type CoordinatorClient,
} from '@cloudless/api';
import { ApiTestBed } from '../testing/api-test-bed.js';
import { FollowerBed, createFakeLeader } from '../testing/follower-bed.js';
import { createNotLeaderError } from './role-errors.js';
import { CALL_HOLD_MS } from './leader-forwarder.js';

let bed: ApiTestBed;
let follower: FollowerBed;
let client: CoordinatorClient;

beforeEach(async () => {
  bed = await ApiTestBed.open();
  follower = await FollowerBed.open(bed);
  follower.setLeader(createFakeLeader(bed));
  client = createCoordinatorClient(follower.transport);
});
afterEach(async () => {
  await follower.close();
  await bed.stop();
});

const web = { name: 'web', spec: { command: ['serve'], replicas: 1 } };
/** Runs a call while the clock goes on until the call has ended. */
async function run<Result>(call: Promise<Result>, forMs = CALL_HOLD_MS): Promise<Result> {
  let isOver = false;
  const watched = call.finally(() => (isOver = true));
  watched.catch(() => undefined);
  for (let atMs = 0; !isOver && atMs <= forMs + 1_000; atMs += 50) await bed.clock.advance(50);
  return watched;
}
const failureOf = (call: Promise<unknown>): Promise<ConnectError> =>
  run(call).then(
    () => Promise.reject(new Error('the call has succeeded')),
    (reason: unknown) => ConnectError.from(reason),
  );
/** The error of a call that failed at another server with `reason`. */
function sentByServer(reason: unknown): ConnectError {
  const error = toConnectError(reason);
  return Object.assign(new ConnectError(error.rawMessage, error.code), {
    details: error.details.map((detail) =>
      'desc' in detail
        ? { type: detail.desc.typeName, value: toBinary(detail.desc, detail.value as never) }
        : detail,
    ),
  });
}
/** A transport whose calls fail with what `fail` returns, as long as it returns anything. */
function failing(transport: Transport, fail: () => unknown): Transport {
  const check = (): void => {
    const reason = fail();
    if (reason !== undefined) throw reason;
  };
  return {
    unary: async (...call) => {
      check();
      return transport.unary(...call);
    },
    stream: async (...call) => {
      check();
      return transport.stream(...call);
    },
  };
}

describe('a coordinator that follows', () => {
  it('forwards a change to the leader, and shows the change to the next read', async () => {
    const created = await run(client.createWorkload(web));
    expect(created.name).toBe('web');
    expect((await client.getWorkload({ name: 'web' })).uid).toBe(created.uid);
    expect(bed.auditRecords).toEqual(['CreateWorkload ok']);
  });

  it('passes on the error of the leader with its code, reason, details and message', async () => {
    await run(client.createWorkload(web));
    const direct = ConnectError.from(await bed.client.createWorkload(web).catch((e: unknown) => e));
    const forwarded = await failureOf(client.createWorkload(web));
    expect({ code: forwarded.code, text: forwarded.rawMessage }).toEqual({
      code: Code.AlreadyExists,
      text: direct.rawMessage,
    });
    expect(readErrorDetails(forwarded)).toEqual(readErrorDetails(direct));
  });

  it('answers reads itself while no coordinator leads', async () => {
    await run(client.createWorkload(web));
    follower.setLeader();
    expect((await client.listWorkloads({})).workloads).toHaveLength(1);
  });

  it('refuses a change when no coordinator leads for the whole hold', async () => {
    follower.setLeader();
    const error = await failureOf(client.createWorkload(web));
    expect(error.rawMessage).toBe('no coordinator leads at the moment; retry');
    expect(error.code).toBe(Code.Unavailable);
    expect(readErrorDetails(error)).toMatchObject({
      reason: 'LEADERSHIP_LOST',
      retryAfterMs: 1_000,
    });
  });

  it('holds a change until a leader appears', async () => {
    follower.setLeader();
    const call = client.createWorkload(web);
    await bed.clock.advance(CALL_HOLD_MS / 2);
    follower.setLeader(createFakeLeader(bed));
    expect((await run(call)).name).toBe('web');
  });

  it('serves a held change itself when it becomes the leader', async () => {
    follower.setLeader();
    const call = client.createWorkload(web);
    await bed.clock.advance(100);
    follower.router.serve({ role: 'leader', calls: bed.api.calls });
    expect((await run(call)).name).toBe('web');
  });

  it('names no leader of an old view to a call that does not reach that leader', async () => {
    Object.defineProperty(follower.state, 'viewAgeMs', { value: 2_001 });
    follower.setLeader({
      ...createFakeLeader(bed),
      connect: () => {
        throw new Error('connection refused');
      },
    });
    expect(readLeaderHint(await failureOf(client.createWorkload(web)))).toEqual({});
  });

  it('refuses a forwarded call, and never forwards it again', async () => {
    let forwards = 0;
    follower.setLeader({
      ...createFakeLeader(bed),
      connect: () => {
        forwards += 1;
        return bed.transport;
      },
    });
    const headers = { 'cloudless-forwarded-by': 'c3' };
    const error = await failureOf(client.createWorkload(web, { headers }));
    expect(readErrorDetails(error)).toMatchObject({ reason: 'LEADERSHIP_LOST' });
    // Also a read, of which the other coordinator wants the answer of the leader.
    await expect(client.listNodes({}, { headers })).rejects.toMatchObject({
      code: Code.Unavailable,
    });
    expect(forwards).toBe(0);
  });

  it('sends a call to the next leader at once when the leader changed during the attempt', async () => {
    const sentTo: bigint[] = [];
    const handingOver: Transport = {
      stream: (...call) => bed.transport.stream(...call),
      unary: () => {
        sentTo.push(1n);
        follower.setLeader({
          ...createFakeLeader(bed, 2n),
          connect: () => {
            sentTo.push(2n);
            return bed.transport;
          },
        });
        return Promise.reject(sentByServer(createNotLeaderError(undefined)));
      },
    };
    follower.setLeader({ ...createFakeLeader(bed), connect: () => handingOver });
    const call = client.createWorkload(web);
    await bed.clock.advance(0);
    expect(sentTo).toEqual([1n, 2n]);
    expect((await run(call)).name).toBe('web');
  });

  const refusedStream = Object.assign(
    new Error('Stream closed with error code NGHTTP2_REFUSED_STREAM'),
    { code: 'ERR_HTTP2_STREAM_ERROR' },
  );
  it.each([
    { by: 'the other coordinator', error: sentByServer(createNotLeaderError(undefined)) },
    { by: 'HTTP/2', error: ConnectError.from(refusedStream, Code.Internal) },
  ])('repeats a call that $by has refused', async ({ error }) => {
    let refusals = 3;
    follower.setLeader({
      ...createFakeLeader(bed),
      connect: () =>
        failing(bed.transport, () => {
          refusals -= 1;
          return refusals < 0 ? undefined : error;
        }),
    });
    expect((await run(client.createWorkload(web))).name).toBe('web');
    expect(bed.auditRecords).toEqual(['CreateWorkload ok']);
  });

  it.each([
    { name: 'with a request id', requestId: 'r-1', outcome: 'web' },
    { name: 'without a request id', requestId: '', outcome: 'unknown' },
  ])(
    'repeats a change $name after an unknown outcome: $outcome',
    async ({ requestId, outcome }) => {
      let breaks = 1;
      const breakOnce: Transport = {
        stream: (...call) => bed.transport.stream(...call),
        unary: async (...call) => {
          const response = await bed.transport.unary(...call);
          if (breaks === 0) return response;
          breaks -= 1;
          throw new ConnectError('connection reset', Code.Unavailable);
        },
      };
      follower.setLeader({ ...createFakeLeader(bed), connect: () => breakOnce });
      const call = run(client.createWorkload({ ...web, requestId }));
      const result = await call.then(
        ({ name }) => name,
        (reason: unknown) => fromConnectError(reason).message,
      );
      expect(result).toMatch(outcome === 'web' ? /^web$/ : /may or may not have been done/);
      expect(bed.events('WorkloadCreated')).toHaveLength(1);
    },
  );

  it('does not call a change not begun that an earlier attempt may have made', async () => {
    const breaking: Transport = {
      stream: (...call) => bed.transport.stream(...call),
      unary: async (...call) => {
        await bed.transport.unary(...call);
        follower.setLeader(); // the leader has ended, and no other one is elected
        throw new ConnectError('connection reset', Code.Unavailable);
      },
    };
    follower.setLeader({ ...createFakeLeader(bed), connect: () => breaking });
    const error = await failureOf(client.createWorkload({ ...web, requestId: 'r-1' }));
    expect(error.rawMessage).toContain('may or may not have been done');
    expect(error.code).toBe(Code.Unavailable);
    expect(readErrorDetails(error).metadata).not.toHaveProperty('not_started');
    expect(bed.events('WorkloadCreated')).toHaveLength(1);
  });

  it('ends its streams when its role changes, with the reason', async () => {
    const watch = client.watchWorkloads({})[Symbol.asyncIterator]();
    await watch.next();
    const next = watch.next();
    follower.router.serve({ role: 'leader', calls: bed.api.calls });
    const error = fromConnectError(await next.catch((reason: unknown) => reason));
    expect(error).toMatchObject({
      reason: 'LEADERSHIP_LOST',
      message: 'the stream ended because the leadership has changed; open the stream again',
    });
  });

  it('forwards streams of logs, and ends them when another coordinator leads', async () => {
    let isStopped = false;
    const endless: Transport = {
      unary: (...call) => bed.transport.unary(...call),
      stream: async (method, signal) =>
        ({
          stream: true,
          service: method.parent,
          method,
          header: new Headers({ 'cloudless-test': 'kept', 'content-type': 'dropped' }),
          trailer: new Headers(),
          message: (async function* () {
            yield create(method.output);
            await new Promise((_, reject) =>
              signal?.addEventListener('abort', () => {
                isStopped = true;
                reject(signal.reason as Error);
              }),
            );
          })(),
        }) as never,
    };
    follower.setLeader({ ...createFakeLeader(bed), connect: () => endless });
    let headers: Headers | undefined;
    const logs = client
      .streamLogs({ name: 'web' }, { onHeader: (received) => (headers = received) })
      [Symbol.asyncIterator]();
    await logs.next();
    expect(headers?.get('cloudless-test')).toBe('kept');
    const next = logs.next();
    follower.setLeader(createFakeLeader(bed, 2n));
    await expect(run(next)).rejects.toMatchObject({ code: Code.Unavailable });
    expect(isStopped).toBe(true);
  });
});

describe('a coordinator that hands the leadership over', () => {
  const headers = { 'cloudless-forwarded-by': 'c3' };
  const becomeLeader = (): void => {
    follower.setLeader();
    follower.router.serve({ role: 'leader', calls: bed.api.calls });
  };

  it('refuses a forwarded change only once its lease has ended', async () => {
    becomeLeader();
    follower.setLeader({
      ...createFakeLeader(bed),
      known: { epoch: 1n, address: 'http://c2', coordinatorId: 'c2' },
    });
    void follower.router.drain(150);
    let outcome = 'waits';
    const call = client.createWorkload(web, { headers }).catch((reason: unknown) => {
      outcome = fromConnectError(reason).message;
    });
    await bed.clock.advance(300);
    follower.router.serve(undefined);
    await bed.clock.advance(300);
    expect(outcome).toBe('waits');
    follower.setLeader();
    await run(call);
    expect(outcome).toBe('no coordinator leads at the moment; retry');
  });

  it('does not wait for reads to end', async () => {
    becomeLeader();
    const reads = [client.getWorkload({ name: 'none' }), client.listWorkloads({})];
    let hasDrained = false;
    const drained = follower.router.drain(150).then(() => (hasDrained = true));
    await Promise.resolve();
    expect(hasDrained).toBe(true);
    await Promise.allSettled([...reads, drained]);
  });

  it('serves a forwarded change that arrives just before its own leadership', async () => {
    follower.setLeader();
    const call = client.createWorkload(web, { headers });
    await bed.clock.advance(50);
    becomeLeader();
    expect((await run(call)).name).toBe('web');
  });
});
