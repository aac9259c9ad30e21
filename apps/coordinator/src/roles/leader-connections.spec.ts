import { once } from 'node:events';
import { createServer as createHttp2Server, type ServerHttp2Session } from 'node:http2';
import { createServer, type AddressInfo, type Server, type Socket } from 'node:net';
import { ConnectError, createClient } from '@connectrpc/connect';
import { CoordinatorService, readErrorDetails } from '@cloudless/api';
import type { KnownLeader } from '@cloudless/api-server';
import { ManualClock } from '@cloudless/base/testing';
import { PING_INTERVAL_MS, PING_TIMEOUT_MS } from './connection-watch.js';
import { LeaderConnections } from './leader-connections.js';

const never = new AbortController().signal;
let clock: ManualClock;
let connections: LeaderConnections;
let servers: { close(): unknown }[];

beforeEach(() => {
  clock = new ManualClock();
  connections = new LeaderConnections(clock, undefined);
  servers = [];
});
afterEach(() => {
  connections.close();
  for (const server of servers) server.close();
});

async function listen(server: Pick<Server, 'listen' | 'address' | 'close' | 'once'>) {
  servers.push(server);
  server.listen(0, '127.0.0.1');
  await once(server as Server, 'listening');
  const { port } = server.address() as AddressInfo;
  return { address: `http://127.0.0.1:${port}`, coordinatorId: 'c1', epoch: 1n } as KnownLeader;
}

/** A leader that answers no call. */
async function aLeader() {
  const opened: ServerHttp2Session[] = [];
  const server = createHttp2Server().on('session', (session) => void opened.push(session));
  const known = await listen(server);
  return { known, opened };
}

const failureOf = (call: Promise<unknown>): Promise<ConnectError> =>
  call.then(
    () => Promise.reject(new Error('the call has succeeded')),
    (reason: unknown) => ConnectError.from(reason),
  );

/** Lets sockets work until the condition holds. */
async function until(condition: () => boolean): Promise<void> {
  while (!condition()) await new Promise((resolve) => setImmediate(resolve));
}

describe('the connection to the leader', () => {
  it('is destroyed with its calls when the leader does not answer pings', async () => {
    const sockets: Socket[] = [];
    // Accepts connections, as the kernel does for a process that is stopped.
    const known = await listen(createServer((socket) => void sockets.push(socket.resume())));
    const client = createClient(CoordinatorService, await connections.connect(known, never));
    const unary = failureOf(client.createWorkload({ name: 'web' }));
    const stream = failureOf(client.watchNodes({})[Symbol.asyncIterator]().next());
    await until(() => sockets.length === 1);
    const closed = once(sockets[0] as Socket, 'close');
    await clock.advance(PING_INTERVAL_MS + PING_TIMEOUT_MS);
    await closed;
    // No answer of a coordinator: the outcome of the change is unknown.
    for (const reason of [await unary, await stream]) {
      expect(readErrorDetails(reason).reason).toBeUndefined();
      expect(reason.message).toContain('no answer to a ping within 3000 ms');
    }
    expect(clock.pendingTimers).toBe(0);
  });

  it('to an earlier leader is closed although a call over it goes on', async () => {
    const [first, second] = [await aLeader(), await aLeader()];
    const transport = await connections.connect(first.known, never);
    const watch = createClient(CoordinatorService, transport)
      .watchNodes({})
      [Symbol.asyncIterator]();
    const failed = expect(watch.next()).rejects.toThrow();
    await until(() => first.opened.length === 1);
    const ended = once(first.opened[0] as ServerHttp2Session, 'close');
    await connections.connect({ ...second.known, epoch: 2n }, never);
    await clock.advance(5_000);
    await Promise.all([ended, failed]);
  });
});
