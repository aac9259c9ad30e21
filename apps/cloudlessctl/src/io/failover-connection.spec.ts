import { Code, ConnectError, createClient, createRouterTransport } from '@connectrpc/connect';
import { CoordinatorService, toConnectError, toLeaderMetadata } from '@cloudless/api';
import { CloudlessError } from '@cloudless/base';
import { connectToAny } from './failover-connection.js';

const servers = ['http://a', 'http://b', 'http://c'];

/** Coordinators that a test can stop. */
class Coordinators {
  readonly down = new Set<string>();
  readonly silent = new Set<string>();
  /** Coordinators that are cut off from the leader. */
  readonly leaderless = new Set<string>();
  readonly calls: string[] = [];
  onCall: () => void = () => undefined;
  readonly prepared: string[] = [];
  readonly closed: string[] = [];

  readonly open = (server: string) => ({
    transport: createRouterTransport(({ service }) => {
      const refuseWithoutLeader = (): void => {
        if (this.leaderless.has(server))
          throw toConnectError(
            new CloudlessError('LEADERSHIP_LOST', `${server} knows no leader`, {
              metadata: toLeaderMetadata({ address: 'http://gone', epoch: 1n }),
            }),
          );
      };
      service(CoordinatorService, {
        watchWorkloads: async function* () {
          refuseWithoutLeader();
        },
        getServerInfo: () => {
          this.calls.push(server);
          this.onCall();
          if (this.down.has(server))
            throw new ConnectError('the connection broke', Code.Unavailable);
          refuseWithoutLeader();
          return { coordinatorId: server };
        },
      });
    }),
    prepare: async (signal: AbortSignal) => {
      this.prepared.push(server);
      if (this.silent.has(server))
        await new Promise((_resolve, reject) =>
          signal.addEventListener('abort', () => reject(signal.reason)),
        );
      if (this.down.has(server)) throw new ConnectError(`${server} refused`, Code.Unavailable);
    },
    close: () => void this.closed.push(server),
  });
}

describe('connectToAny', () => {
  let coordinators: Coordinators;
  let call: (signal?: AbortSignal) => Promise<string>;
  let connection: ReturnType<typeof connectToAny>;
  beforeEach(() => {
    coordinators = new Coordinators();
    connection = connectToAny({
      servers,
      open: coordinators.open,
      connectTimeoutMs: 20,
      retryTimes: { retryMs: 200, pauseMs: 1 },
    });
    const client = createClient(CoordinatorService, connection.transport);
    call = async (signal) =>
      (await client.getServerInfo({}, signal === undefined ? {} : { signal })).coordinatorId;
  });
  afterEach(() => connection.close());

  it('uses the first coordinator that answers, and stays with it', async () => {
    coordinators.down.add('http://a');
    expect([await call(), await call()]).toEqual(['http://b', 'http://b']);
    coordinators.down.clear();
    expect(await call()).toBe('http://b');
    expect(coordinators.prepared).toEqual(['http://a', ...Array<string>(3).fill('http://b')]);
  });

  it('leaves a coordinator that neither accepts nor refuses a connection', async () => {
    coordinators.silent.add('http://a');
    expect(await call()).toBe('http://b');
  });

  it('never repeats a call that was sent, and uses another coordinator for the next call', async () => {
    expect(await call()).toBe('http://a');
    coordinators.prepared.length = 0;
    const { down } = coordinators;
    const [first = ''] = servers;
    // The connection breaks while the call runs.
    const running = call();
    down.add(first);
    await expect(running).rejects.toMatchObject({ code: Code.Unavailable });
    expect(coordinators.calls.filter((server) => server !== first)).toEqual([]);
    expect(await call()).toBe('http://b');
  });

  it('leaves a coordinator that is cut off from the leader, and stays with the next', async () => {
    coordinators.leaderless.add('http://a').add('http://b');
    expect([await call(), await call()]).toEqual(['http://c', 'http://c']);
    expect(coordinators.calls).toEqual([...servers, 'http://c']);
    expect(coordinators.closed).toEqual([]);
  });

  it('asks each coordinator again until one knows the leader', async () => {
    for (const server of servers) coordinators.leaderless.add(server);
    const running = call();
    coordinators.onCall = () => {
      if (coordinators.calls.length === 4) coordinators.leaderless.delete('http://b');
    };
    expect(await running).toBe('http://b');
  });

  it('says that no coordinator leads when none does in time', async () => {
    for (const server of servers) coordinators.leaderless.add(server);
    await expect(call()).rejects.toThrow(/knows no leader/);
    expect(new Set(coordinators.calls)).toEqual(new Set(servers));
  });

  it('opens the next stream at another coordinator after one that knows no leader', async () => {
    coordinators.leaderless.add('http://a');
    const watch = createClient(CoordinatorService, connection.transport).watchWorkloads({});
    await expect(watch[Symbol.asyncIterator]().next()).rejects.toThrow(/knows no leader/);
    expect(await call()).toBe('http://b');
  });

  it('names the last failure when no coordinator answers, after one attempt for each', async () => {
    for (const server of servers) coordinators.down.add(server);
    await expect(call()).rejects.toThrow('http://c refused');
    expect(coordinators.prepared).toEqual(servers);
  });

  it('moves on once for calls that fail together', async () => {
    coordinators.down.add('http://a');
    expect(await Promise.all([call(), call(), call()])).toEqual(Array(3).fill('http://b'));
  });

  it('stops trying when the call is cancelled, and closes every connection at the end', async () => {
    for (const server of servers) coordinators.silent.add(server);
    const stop = new AbortController();
    const running = call(stop.signal);
    stop.abort();
    await expect(running).rejects.toBeDefined();
    expect(coordinators.prepared).toEqual(['http://a']);
    connection.close();
    expect(coordinators.closed).toContain('http://a');
  });
});
