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

function gate() {
  let open = (): void => undefined;
  const opened = new Promise<void>((resolve) => (open = resolve));
  return { opened, open };
}

describe('a member of etcd that answers no renewal in time', () => {
  let server: Http2Server;
  let client: EtcdClient;
  let isSilent: boolean;
  const asked = { current: gate() };
  const changed = { current: gate() };
  const closed = gate();

  beforeAll(async () => {
    const untilClosed = (): Promise<never> =>
      closed.opened.then(() => Promise.reject(new Error('closed')));
    server = createHttp2Server(
      connectNodeAdapter({
        routes: (router) => {
          router.service(Lease, { leaseKeepAlive: () => never(closed.opened) });
          router.service(Maintenance, {
            status: async () => {
              asked.current.open();
              return isSilent ? untilClosed() : {};
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
      }),
    );
    server.listen(0, '127.0.0.1');
    await once(server, 'listening');
  });
  beforeEach(() => {
    asked.current = gate();
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

  it('keeps its watches while it answers anything', async () => {
    isSilent = false;
    const watch = await WatchStream.open(client, START);
    expect((await watch.next()).created).toBe(true);
    const next = watch.next();
    await expect(renew()).rejects.toMatchObject({ kind: 'deadline' });
    await asked.current.opened;
    await client.call(RENEW, ({ maintenance }, settings) => maintenance.status({}, settings));
    changed.current.open();
    expect((await next).created).toBe(false);
    watch.close();
  });

  it('loses its watches when it answers nothing', async () => {
    isSilent = true;
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
