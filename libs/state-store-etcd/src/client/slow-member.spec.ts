import { once } from 'node:events';
import { createServer as createHttp2Server, type Http2Server } from 'node:http2';
import { createServer, type AddressInfo, type Server, type Socket } from 'node:net';
import { connectNodeAdapter } from '@connectrpc/connect-node';
import { systemClock } from '@cloudless/app-kit';
import { silentLog } from '@cloudless/base';
import { ManualClock } from '@cloudless/base/testing';
import { Lease, Maintenance, Watch } from '../gen/etcd/etcdserverpb/rpc_pb.js';
import { WatchStream } from '../watch/watch-stream.js';
import { CONNECT_MS, Endpoint } from './endpoint.js';
import { EtcdClient, RENEW } from './etcd-client.js';

const START = { key: Uint8Array.of(1), rangeEnd: Uint8Array.of(2), startRevision: 1n };

/** Header that the server adds to requests on a connection that has a watch. */
const OF_WATCHES = 'x-connection-of-watches';

function gate() {
  let open = (): void => undefined;
  const opened = new Promise<void>((resolve) => (open = resolve));
  return { opened, open };
}

/** The connections on which a member answers questions about its status. */
type Answers = 'all' | 'none' | 'of watches';

describe('a member of etcd that answers no renewal in time', () => {
  let server: Http2Server;
  let client: EtcdClient;
  let answers: Answers;
  /** Opened when the member answers a question about its status. */
  const answered = { current: gate() };
  const changed = { current: gate() };
  const closed = gate();

  beforeAll(async () => {
    const untilClosed = (): Promise<never> =>
      closed.opened.then(() => Promise.reject(new Error('closed')));
    const handle = connectNodeAdapter({
      routes: (router) => {
        router.service(Lease, { leaseKeepAlive: () => never(closed.opened) });
        router.service(Maintenance, {
          status: async (_request, { requestHeader }) => {
            const isOfWatches = requestHeader.has(OF_WATCHES);
            if (answers === 'none' || (answers === 'of watches' && !isOfWatches))
              return untilClosed();
            answered.current.open();
            return {};
          },
        });
        router.service(Watch, {
          watch: async function* () {
            yield { created: true };
            await Promise.race([changed.current.opened, closed.opened]);
            yield { created: false };
          },
        });
      },
    });
    const withWatches = new WeakSet<object>();
    server = createHttp2Server((request, response) => {
      const { session } = request.stream;
      if (session !== undefined && request.url.endsWith('/Watch')) withWatches.add(session);
      if (session !== undefined && withWatches.has(session)) request.headers[OF_WATCHES] = 'yes';
      handle(request, response);
    });
    server.listen(0, '127.0.0.1');
    await once(server, 'listening');
  });
  beforeEach(() => {
    answered.current = gate();
    changed.current = gate();
    const { port } = server.address() as AddressInfo;
    const endpoints = [`http://127.0.0.1:${port}`];
    client = new EtcdClient({ endpoints, clock: systemClock, log: silentLog });
  });
  afterEach(() => client.close());
  afterAll(async () => {
    closed.open();
    server.close();
    await once(server, 'close');
  });

  const renew = (): Promise<unknown> =>
    client.call(RENEW, async ({ lease }, settings) => {
      for await (const answer of lease.leaseKeepAlive(toStream({ ID: 1n }), settings))
        return answer;
      throw new Error('no answer');
    });

  it.each(['all', 'of watches'] as const)(
    'keeps its watches while it answers on these connections: %s',
    async (connections) => {
      answers = connections;
      const watch = await WatchStream.open(client, START);
      expect((await watch.next()).created).toBe(true);
      const next = watch.next();
      await expect(renew()).rejects.toMatchObject({ kind: 'deadline' });
      await Promise.race([answered.current.opened, next]); // rejects when the watch is reset
      changed.current.open();
      expect((await next).created).toBe(false);
      watch.close();
    },
  );

  it('loses its watches when it answers nothing', async () => {
    answers = 'none';
    const watch = await WatchStream.open(client, START);
    await watch.next();
    const next = watch.next();
    next.catch(() => undefined);
    await expect(renew()).rejects.toMatchObject({ kind: 'deadline' });
    await expect(next).rejects.toMatchObject({ kind: 'unavailable' });
  });
});

describe('an attempt to connect to a member of etcd', () => {
  let server: Server;
  let endpoint: Endpoint;
  const clock = new ManualClock();
  const sockets: Socket[] = [];
  beforeAll(async () => {
    server = createServer((socket) => sockets.push(socket.on('error', () => undefined)));
    server.listen(0, '127.0.0.1');
    await once(server, 'listening');
    const { port } = server.address() as AddressInfo;
    // Accepts connections, and never answers the TLS handshake.
    endpoint = new Endpoint(`https://127.0.0.1:${port}`, {}, clock);
  });
  afterAll(async () => {
    endpoint.close();
    sockets.forEach((socket) => socket.destroy());
    server.close();
    await once(server, 'close');
  });

  it('goes on for calls with more time when a call with less time gives up', async () => {
    const ends: string[] = [];
    const connect = (name: string, timeoutMs: number): Promise<void> =>
      endpoint.connect('calls', timeoutMs).catch(() => void ends.push(name));
    const connecting = once(server, 'connection');
    const patient = connect('patient', CONNECT_MS);
    const hasty = connect('hasty', 450);
    await connecting;
    await clock.advance(450);
    await hasty;
    await new Promise((resolve) => setImmediate(resolve));
    expect(ends).toEqual(['hasty']);
    await clock.advance(CONNECT_MS);
    await patient;
    expect(ends).toEqual(['hasty', 'patient']);
    expect(sockets).toHaveLength(1);
  });
});

async function* never(end: Promise<void>): AsyncGenerator<never> {
  await end;
}

async function* toStream<Item>(item: Item): AsyncGenerator<Item> {
  yield item;
}
