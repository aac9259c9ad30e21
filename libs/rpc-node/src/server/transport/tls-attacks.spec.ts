import { once } from 'node:events';
import type { IncomingMessage } from 'node:http';
import * as https from 'node:https';
import * as net from 'node:net';
import * as tls from 'node:tls';
import { TestCluster, TestServerTls, type TestCredential } from '../../testing/test-cluster.js';
import type { RpcServer, RpcServerOptions } from '../options.js';
import { aLog, serversOfTest } from '../testing/fixture.js';

const openServer = serversOfTest(afterEach);

let cluster: TestCluster;
let serverCredential: TestCredential;
let clientHello: Buffer;
beforeAll(async () => {
  cluster = await TestCluster.create();
  serverCredential = await cluster.issueServer();
  clientHello = await captureClientHello();
});

const open = (options: Partial<RpcServerOptions> = {}) =>
  openServer({ tls: new TestServerTls(serverCredential), ...options });

/** Returns the first message of a TLS client. */
async function captureClientHello(): Promise<Buffer> {
  const server = net.createServer();
  await once(server.listen(0, '127.0.0.1'), 'listening');
  const client = tls.connect((server.address() as net.AddressInfo).port, '127.0.0.1');
  client.on('error', () => undefined);
  const [socket] = (await once(server, 'connection')) as [net.Socket];
  const [hello] = (await once(socket, 'data')) as [Buffer];
  client.destroy();
  server.close();
  return hello;
}

async function connectRaw({ address }: RpcServer): Promise<net.Socket> {
  const socket = net.connect({ port: address.port, host: '127.0.0.1', noDelay: true });
  socket.on('error', () => undefined);
  await once(socket, 'connect');
  return socket;
}

/** Resolves when a socket is closed, also after an error. */
const closeOf = (socket: net.Socket): Promise<void> =>
  new Promise((resolve) => socket.once('close', () => resolve()));

/** Sends a ClientHello, and resolves when the server has answered. The handshake is not complete. */
async function startHandshake(server: RpcServer): Promise<net.Socket> {
  const socket = await connectRaw(server);
  socket.write(clientHello);
  await once(socket, 'data');
  socket.resume();
  return socket;
}

/** Makes a request over TLS on a new connection. */
async function request({ url }: RpcServer): Promise<number> {
  const sent = https.get(url, {
    ...{ ca: cluster.bundlePem, checkServerIdentity: () => undefined },
    agent: false,
  });
  const [response] = (await once(sent, 'response')) as [IncomingMessage];
  response.resume();
  await once(response, 'end');
  return response.statusCode ?? 0;
}

/** Opens a TLS connection with a client certificate. Resolves when the server closes it. */
async function presentCertificate(server: RpcServer, key: string, cert: string): Promise<void> {
  const socket = tls.connect({
    ...{ port: server.address.port, host: '127.0.0.1', rejectUnauthorized: false },
    ...{ key, cert },
  });
  socket.on('error', () => undefined).resume();
  await closeOf(socket);
}

/** Returns the reasons of failed handshakes in the log. */
const failuresOf = (log: ReturnType<typeof aLog>): unknown[] =>
  log.lines
    .filter(({ message }) => message === 'TLS handshakes failed')
    .map(({ fields }) => fields['error']);

describe('a server with TLS under attack', () => {
  it('ends a handshake that arrives byte by byte 10 s after its first byte', async () => {
    const server = await open();
    const socket = await connectRaw(server);
    const closed = closeOf(socket);
    await server.clock.advance(5_000); // less than the time for the first byte
    for (const byte of clientHello.subarray(0, 50)) {
      await new Promise<void>((resolve) => socket.write(Buffer.from([byte]), () => resolve()));
      await new Promise((resolve) => setImmediate(resolve));
      await server.clock.advance(100);
    }
    expect(server.openConnections).toBe(1);
    await server.clock.advance(5_200);
    await closed;
    expect(server.openConnections).toBe(0);
  });

  it('ends a connection without a request 10 s after its handshake', async () => {
    const server = await open();
    const socket = tls.connect({
      ...{ port: server.address.port, host: '127.0.0.1', rejectUnauthorized: false },
    });
    socket.on('error', () => undefined).resume();
    await once(socket, 'session'); // the server has completed the handshake
    const closed = closeOf(socket);
    await server.clock.advance(9_999);
    expect(server.openConnections).toBe(1);
    await server.clock.advance(1);
    await closed;
  });

  it('drops the oldest incomplete handshake first when too many connections are open', async () => {
    const server = await open({ limits: { maxConnections: 3 } });
    const unused = tls.connect({
      ...{ port: server.address.port, host: '127.0.0.1', rejectUnauthorized: false },
    });
    unused.on('error', () => undefined).resume();
    await once(unused, 'session');
    const halfOpen = [await startHandshake(server), await startHandshake(server)];
    const closed = closeOf(halfOpen[0] as net.Socket);
    expect(await request(server)).toBe(200);
    await closed;
    expect(halfOpen.map(({ destroyed }) => destroyed)).toEqual([true, false]);
    expect(unused.destroyed).toBe(false);
    unused.destroy();
    halfOpen[1]?.destroy();
  });

  it('serves a client while another starts many handshakes', async () => {
    const server = await open({ limits: { maxConnections: 50 } });
    const halfOpen: net.Socket[] = [];
    for (let count = 0; count < 150; count += 1) {
      halfOpen.push(await startHandshake(server));
      if (count % 50 === 49) expect(await request(server)).toBe(200);
    }
    expect(server.openConnections).toBeLessThanOrEqual(50);
    expect(server.getLoad().connectionsDropped).toBeGreaterThanOrEqual(100);
    for (const socket of halfOpen) socket.destroy();
  });

  it('closes a connection with a call but without an identity when too many are open', async () => {
    let onCall: () => void = () => undefined;
    const server = await open({
      limits: { maxConnections: 2 },
      authorize: ({ header }) => {
        onCall();
        const isKnown = header.get('authorization') !== null;
        const principal = isKnown
          ? ({ kind: 'controller', name: 'controller/c' } as const)
          : ({ kind: 'unauthenticated', name: 'unauthenticated' } as const);
        return { principal, connectionId: '', check: () => undefined };
      },
    });
    /** Opens a call whose request never ends. */
    const startCall = async (headers: Record<string, string>): Promise<net.Socket> => {
      const sent = https.request(`${server.url}/cloudless.api.CoordinatorService/CreateWorkload`, {
        ...{ method: 'POST', agent: false, rejectUnauthorized: false },
        headers: { 'content-type': 'application/json', ...headers },
      });
      sent.on('error', () => undefined).write('{');
      const [socket] = (await once(sent, 'socket')) as [tls.TLSSocket];
      await new Promise<void>((resolve) => (onCall = resolve));
      return socket;
    };
    const known = await startCall({ authorization: 'Bearer x' });
    const anonymous = await startCall({});
    const closed = closeOf(anonymous);
    expect(await request(server)).toBe(200);
    await closed;
    expect(known.destroyed).toBe(false);
    known.destroy();
  });

  it('replaces the oldest incomplete handshake above maxHandshakes after 2 s', async () => {
    const server = await open({ limits: { maxHandshakes: 2 } });
    const [oldest, second] = [await startHandshake(server), await startHandshake(server)];
    const closed = closeOf(oldest);
    const status = request(server);
    await server.clock.advance(1_999);
    expect(oldest.destroyed).toBe(false);
    await server.clock.advance(2_000);
    await closed;
    expect(await status).toBe(200);
    expect(server.getLoad().connectionsDropped).toBeGreaterThan(0);
    second.destroy();
  });

  it.each([
    ['a record of random bytes', (): Buffer => Buffer.from('16030100050102030405', 'hex')],
    ['garbage after a ClientHello', () => Buffer.concat([clientHello, Buffer.alloc(500, 0x41)])],
    ['a second ClientHello', () => Buffer.concat([clientHello, clientHello])],
    [
      'a ClientHello of a length that is not true',
      () => Buffer.concat([clientHello.subarray(0, 9), Buffer.alloc(clientHello.length, 0)]),
    ],
  ])('closes a connection with %s, and continues', async (_name, bytes) => {
    const log = aLog();
    const server = await open({ log });
    const socket = await connectRaw(server);
    const closed = closeOf(socket);
    socket.resume();
    socket.write(bytes());
    await closed;
    expect(failuresOf(log)).toHaveLength(1);
    expect(await request(server)).toBe(200);
  });

  it('closes a connection whose client certificate is too large, and continues', async () => {
    const log = aLog();
    const server = await open({ log });
    const names = (count: number): string[] =>
      Array.from({ length: count }, (_, index) => `${'a'.repeat(50)}.${index}.example`);
    for (const count of [300, 2_000]) {
      const large = await cluster.issue('node', 'n1', { dnsNames: names(count) });
      await presentCertificate(server, large.keyPem, large.chainPem);
    }
    expect(failuresOf(log)).toEqual([
      'the client certificate and its issuers are more than 4 certificates or more than 16384 bytes',
    ]);
    expect(await request(server)).toBe(200);
  });

  it.each([
    ['has connected', 'connect'],
    ['has completed the handshake', 'secureConnect'],
  ])('closes the connection of a client that leaves once it %s', async (_name, event) => {
    const server = await open();
    const socket = tls.connect({
      ...{ port: server.address.port, host: '127.0.0.1', rejectUnauthorized: false },
      minVersion: 'TLSv1.3',
    });
    socket.on('error', () => undefined);
    await once(socket, event);
    socket.destroy();
    // The clock of the server stands still, so no timeout ends the connection.
    while (server.openConnections > 0) await new Promise((resolve) => setImmediate(resolve));
    expect(await request(server)).toBe(200);
  });

  it('survives a client that closes at any time of the handshake', async () => {
    const server = await open();
    for (const length of [1, 5, 50, clientHello.length]) {
      const socket = await connectRaw(server);
      socket.write(clientHello.subarray(0, length));
      socket.destroySoon();
      const aborted = await connectRaw(server);
      aborted.write(clientHello.subarray(0, length));
      aborted.resetAndDestroy();
    }
    expect(await request(server)).toBe(200);
  });
});
