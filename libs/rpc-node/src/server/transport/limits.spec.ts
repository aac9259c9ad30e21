import * as http from 'node:http';
import * as http2 from 'node:http2';
import * as net from 'node:net';
import { once } from 'node:events';
import { Code, createClient } from '@connectrpc/connect';
import { createConnectTransport, createGrpcTransport } from '@connectrpc/connect-node';
import { settle } from '@cloudless/base/testing';
import { CoordinatorService } from '@cloudless/api';
import { aLog, aServer, serversOfTest } from '../testing/fixture.js';
import { envelope, http1, http2Request, JSON_TYPE } from '../testing/raw-http.js';
import type { ClientConnection } from './connection.js';

const open = serversOfTest(afterEach);

/** Returns a promise and the function that resolves it. */
function aSignal() {
  let pass: () => void = () => undefined;
  const passed = new Promise<void>((resolve) => (pass = resolve));
  return { passed, pass };
}

/** Returns an `onConnection` option, and a promise of the first connection that it receives. */
function nextConnection() {
  let resolve: (connection: ClientConnection) => void = () => undefined;
  const connected = new Promise<ClientConnection>((done) => (resolve = done));
  return { connected, onConnection: (connection: ClientConnection) => resolve(connection) };
}

describe('startRpcServer', () => {
  it('ends a unary call without a deadline after 30 s, also when its handler ignores the signal', async () => {
    const [called, aborted] = [aSignal(), aSignal()];
    const { url, clock } = await open({
      registerRoutes: (router) =>
        router.rpc(CoordinatorService.method.getWorkload, (_request, { signal }) => {
          signal.addEventListener('abort', aborted.pass);
          called.pass();
          return new Promise<never>(() => undefined);
        }),
    });
    const call = createClient(
      CoordinatorService,
      createConnectTransport({ baseUrl: url, httpVersion: '2' }),
    ).getWorkload({});
    await called.passed;
    await clock.advance(30_000);
    await expect(call).rejects.toMatchObject({
      code: Code.DeadlineExceeded,
      rawMessage: 'GetWorkload gave no answer within 30000 ms',
    });
    await aborted.passed;
  });

  it.each([
    {
      name: 'Connect with the timeout of gRPC',
      type: 'application/json',
      header: { 'grpc-timeout': '10S' },
    },
    {
      name: 'gRPC with the timeout of Connect',
      type: 'application/grpc',
      header: { 'connect-timeout-ms': '10000' },
    },
    {
      name: 'compressed gRPC with the timeout of Connect',
      type: 'application/GRPC+proto',
      header: { 'connect-timeout-ms': '10000', 'grpc-encoding': 'gzip' },
    },
    {
      name: 'gRPC-Web with the timeout of Connect',
      type: 'application/grpc-web+proto',
      header: { 'connect-timeout-ms': '10000' },
    },
  ])('ends a unary call after 30 s: $name', async ({ type, header }) => {
    const called = aSignal();
    const { url, clock } = await open({
      registerRoutes: (router) =>
        router.rpc(CoordinatorService.method.getWorkload, () => {
          called.pass();
          return new Promise<never>(() => undefined);
        }),
    });
    const response = http2Request(url, {
      path: '/cloudless.api.CoordinatorService/GetWorkload',
      headers: { ...header, 'content-type': type },
      body: type === 'application/json' ? '{}' : envelope(Buffer.alloc(0)),
    });
    await called.passed;
    await clock.advance(30_000);
    const { status, body, trailers } = await response;
    expect({ status, text: `${String(trailers['grpc-message'])} ${body.toString()}` }).toEqual({
      status: type === 'application/json' ? 504 : 200,
      text: expect.stringContaining('GetWorkload gave no answer within 30000 ms'),
    });
  });

  it.each([
    { name: 'gRPC', type: 'application/grpc', header: { 'grpc-timeout': '60S' } },
    { name: 'Connect', type: 'application/json', header: { 'connect-timeout-ms': '60000' } },
  ])('after 30 s, does not end a call of $name whose client set a longer deadline', async (row) => {
    const [called, mayAnswer] = [aSignal(), aSignal()];
    const { url, clock } = await open({
      registerRoutes: (router) =>
        router.rpc(CoordinatorService.method.getWorkload, async () => {
          called.pass();
          await mayAnswer.passed;
          return { name: 'web' };
        }),
    });
    const response = http2Request(url, {
      path: '/cloudless.api.CoordinatorService/GetWorkload',
      headers: { ...row.header, 'content-type': row.type },
      body: row.type === 'application/json' ? '{}' : envelope(Buffer.alloc(0)),
    });
    await called.passed;
    await clock.advance(30_000);
    mayAnswer.pass();
    expect((await response).body.toString()).toContain('web');
  });

  it('sets no deadline for a stream', async () => {
    const [called, mayContinue] = [aSignal(), aSignal()];
    const { url, clock } = await open({
      registerRoutes: (router) =>
        router.rpc(CoordinatorService.method.watchWorkloads, async function* () {
          yield {};
          called.pass();
          await mayContinue.passed;
          yield {};
        }),
    });
    const stream = createClient(CoordinatorService, createGrpcTransport({ baseUrl: url }))
      .watchWorkloads({})
      [Symbol.asyncIterator]();
    await stream.next();
    const second = stream.next();
    await called.passed;
    await clock.advance(3_600_000);
    mayContinue.pass();
    expect(await second).toMatchObject({ done: false });
  });

  it.each([
    {
      name: 'a timeout of more than 24 hours',
      headers: { ...JSON_TYPE, 'connect-timeout-ms': String(25 * 3_600_000) },
    },
    {
      name: 'a timeout that is not a number',
      headers: { ...JSON_TYPE, 'connect-timeout-ms': 'soon' },
    },
  ])('answers 400 to a request with $name', async ({ headers }) => {
    const { url } = await open();
    expect(await http1(url, { headers, body: '{}' })).toMatchObject({ status: 400 });
  });

  it.each([
    { name: 'sends nothing', first: undefined },
    { name: 'sends half a preface', first: 'PRI * HT' },
    { name: 'sends half a head', first: 'POST / HTTP/1.1\r\nHost: loc' },
  ])('closes the connection of a client that $name after 10 s', async ({ first }) => {
    const server = await open();
    const { address, clock } = server;
    const socket = net.connect(address.port, address.host).on('error', () => undefined);
    await once(socket, 'connect');
    if (first !== undefined)
      await new Promise<void>((resolve) => socket.write(first, () => resolve()));
    await waitForConnections(server, 1);
    await clock.advance(9_999);
    expect(socket.destroyed).toBe(false);
    const closed = new Promise((resolve) => socket.once('close', resolve));
    socket.resume();
    await clock.advance(1);
    await closed;
  });

  it('ends a call whose body is not complete after 30 s, over HTTP/1.1 and HTTP/2', async () => {
    const { connected, onConnection } = nextConnection();
    const { url, address, clock } = await open({ onConnection });
    const socket = net.connect(address.port, address.host).on('error', () => undefined);
    socket.write(
      'POST /cloudless.api.CoordinatorService/CreateWorkload HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\n{',
    );
    const connection = await connected;
    const closed = new Promise<void>((resolve) => connection.onClose(resolve));
    await makeRoundTrip(url); // the server has read the head by now
    await clock.advance(30_000);
    await closed;
    socket.destroy();

    const session = http2.connect(url);
    const stream = session.request({
      ':method': 'POST',
      ':path': '/cloudless.api.CoordinatorService/CreateWorkload',
      ...JSON_TYPE,
    });
    stream.write('{');
    await ping(session);
    await clock.advance(30_000);
    await once(stream, 'close');
    expect(stream.rstCode).toBe(http2.constants.NGHTTP2_CANCEL);
    session.destroy();
  });

  it('closes an HTTP/2 session without streams after 60 s, but keeps a session with a stream', async () => {
    const called = aSignal();
    const { url, clock } = await open({
      registerRoutes: (router) =>
        router.rpc(
          CoordinatorService.method.watchWorkloads,
          async function* (_request, { signal }) {
            yield {};
            called.pass();
            await new Promise((resolve) => signal.addEventListener('abort', resolve));
          },
        ),
    });
    const session = http2.connect(url);
    await ping(session);
    const headers = {
      ':method': 'POST',
      ':path': '/cloudless.api.CoordinatorService/WatchWorkloads',
      'content-type': 'application/connect+json',
    };
    const stream = session.request(headers);
    stream.resume().end(Buffer.from([0, 0, 0, 0, 2, 0x7b, 0x7d]));
    await called.passed;
    await clock.advance(600_000);
    await ping(session); // still open
    const closed = new Promise((resolve) => session.once('close', resolve));
    stream.close();
    await once(stream, 'close');
    await ping(session);
    await clock.advance(60_000);
    await closed;
  });
});

describe('startRpcServer', () => {
  it('answers 431 to a head of more than 16 KiB, over HTTP/1.1 and HTTP/2', async () => {
    const { url } = await open();
    const headers = { ...JSON_TYPE, 'x-large': 'a'.repeat(17 * 1024) };
    expect(await http1(url, { headers, body: '{}' })).toMatchObject({ status: 431 });
    expect(await http2Request(url, { headers, body: '{}' })).toMatchObject({ status: 431 });
  });

  it('sends its limits of streams and heads in the HTTP/2 settings', async () => {
    const { url } = await open();
    const session = http2.connect(url);
    const [settings] = (await once(session, 'remoteSettings')) as [http2.Settings];
    expect(settings).toMatchObject({ maxConcurrentStreams: 128, maxHeaderListSize: 16 * 1024 });
    session.destroy();
  });

  it('closes unused, then idle connections to accept new ones above maxConnections, and logs once', async () => {
    const log = aLog();
    const server = await open({ limits: { maxConnections: 2 }, log });
    const { url, address } = server;
    const agent = new http.Agent({ keepAlive: true, maxSockets: 1 });
    await http1(url, {}, agent);
    const silent = net.connect(address.port, address.host).resume();
    const closed = once(silent, 'close');
    await once(silent, 'connect');
    expect(await http1(url, { body: '{}' })).toMatchObject({ status: 200 });
    await closed;
    // the idle connection was kept
    expect(await http1(url, { body: '{}' }, agent)).toMatchObject({ status: 200 });
    const others = [1, 2].map(() => net.connect(address.port, address.host).resume());
    await Promise.all(others.map((socket) => once(socket, 'connect')));
    expect(await http1(url, { body: '{}' })).toMatchObject({ status: 200 });
    expect(
      log.lines.filter(({ message }) => message.startsWith('connections closed')),
    ).toHaveLength(1);
    expect(server.getLoad().connectionsDropped).toBeGreaterThanOrEqual(2);
    agent.destroy();
  });

  it('closes a new connection above maxConnections when all others have open calls', async () => {
    const called = aSignal();
    const { url, address } = await open({
      limits: { maxConnections: 1 },
      registerRoutes: (router) =>
        router.rpc(
          CoordinatorService.method.watchWorkloads,
          async function* (_request, { signal }) {
            yield {};
            called.pass();
            await new Promise((resolve) => signal.addEventListener('abort', resolve));
          },
        ),
    });
    const stream = createClient(CoordinatorService, createGrpcTransport({ baseUrl: url }))
      .watchWorkloads({})
      [Symbol.asyncIterator]();
    await stream.next();
    await called.passed;
    await once(net.connect(address.port, address.host).resume(), 'close');
    void stream.return?.();
  });
});

describe('RpcServer.close', () => {
  it('ends streams with UNAVAILABLE, lets unary calls finish, and leaves no socket or timer', async () => {
    const [called, mayRespond] = [aSignal(), aSignal()];
    let calls = 0;
    const server = await aServer({
      registerRoutes: (router) =>
        router.service(CoordinatorService, {
          getWorkload: async ({ name }) => {
            if ((calls += 1) === 2) called.pass();
            await mayRespond.passed;
            return { name };
          },
          watchWorkloads: async function* () {
            yield {};
            await new Promise<never>(() => undefined); // ignores the signal
          },
        }),
    });
    const client = createClient(
      CoordinatorService,
      createConnectTransport({ baseUrl: server.url, httpVersion: '2' }),
    );
    const stream = client.watchWorkloads({})[Symbol.asyncIterator]();
    await stream.next();
    const call = client.getWorkload({ name: 'web' });
    const overHttp1 = createClient(
      CoordinatorService,
      createConnectTransport({ baseUrl: server.url, httpVersion: '1.1' }),
    ).getWorkload({ name: 'api' });
    await called.passed;
    const closed = server.close(5_000);
    await expect(stream.next()).rejects.toMatchObject({
      code: Code.Unavailable,
      rawMessage: 'the server is shutting down',
    });
    mayRespond.pass();
    expect(await call).toMatchObject({ name: 'web' });
    expect(await overHttp1).toMatchObject({ name: 'api' });
    await closed;
    expect({ open: server.openConnections, timers: server.clock.pendingTimers }).toEqual({
      open: 0,
      timers: 0,
    });
    await expect(
      once(net.connect(server.address.port, server.address.host), 'connect'),
    ).rejects.toMatchObject({
      code: 'ECONNREFUSED',
    });
  });

  it('destroys connections with open calls when the grace period is over', async () => {
    const called = aSignal();
    const server = await aServer({
      registerRoutes: (router) =>
        router.rpc(CoordinatorService.method.getWorkload, () => {
          called.pass();
          return new Promise<never>(() => undefined);
        }),
    });
    const call = createClient(
      CoordinatorService,
      createGrpcTransport({ baseUrl: server.url }),
    ).getWorkload({});
    const failed = expect(call).rejects.toMatchObject({ code: expect.any(Number) });
    await called.passed;
    const closed = server.close(5_000);
    await server.clock.advance(4_999);
    expect(server.openConnections).toBe(1);
    await server.clock.advance(1);
    await closed;
    await failed;
    expect({ open: server.openConnections, timers: server.clock.pendingTimers }).toEqual({
      open: 0,
      timers: 0,
    });
  });

  it('can be called twice', async () => {
    const server = await aServer();
    await Promise.all([server.close(1_000), server.close()]);
  });
});

describe('startRpcServer', () => {
  it('rejects with the port and the option when the port is in use', async () => {
    const { address } = await open();
    await expect(aServer({ port: address.port })).rejects.toMatchObject({
      kind: 'unavailable',
      message: `port ${address.port} on 127.0.0.1 is in use; stop the program that uses it or choose another port with --port`,
    });
  });

  it.each([
    { name: 'a host that is not loopback', options: { host: '0.0.0.0' }, kind: 'precondition' },
    { name: 'a port out of range', options: { port: 65_536 }, kind: 'invalid' },
    { name: 'a port with a fraction', options: { port: 1.5 }, kind: 'invalid' },
  ])('rejects $name', async ({ options, kind }) => {
    await expect(aServer(options)).rejects.toMatchObject({ kind });
  });

  it.each([
    {
      name: 'HTTP/2',
      bytes: 'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n',
      frame: Buffer.from([0, 0, 0, 4, 0, 0, 0, 0, 0]),
      response: /^\0\0.\x04/s,
    },
    {
      name: 'HTTP/1.1 with a method that starts like the HTTP/2 preface',
      bytes: 'PROPFIND / HTTP/1.1\r\nHost: localhost\r\n',
      frame: Buffer.from('\r\n'),
      response: /^HTTP\/1\.1 404/,
    },
  ])('detects $name when the first bytes arrive one by one', async ({ bytes, frame, response }) => {
    const { address } = await open();
    const socket = net.connect({ port: address.port, host: address.host, noDelay: true });
    await once(socket, 'connect');
    for (const byte of [...Buffer.from(bytes), ...frame]) {
      await new Promise<void>((resolve) => socket.write(Buffer.from([byte]), () => resolve()));
      await new Promise((resolve) => setImmediate(resolve));
    }
    const [first] = (await once(socket, 'data')) as [Buffer];
    expect(first.toString('latin1')).toMatch(response);
    socket.destroy();
  });
});

/** Sends an HTTP/2 PING and resolves at the reply. */
async function ping(session: http2.ClientHttp2Session): Promise<void> {
  session.on('error', () => undefined); // the server may close the session
  if (session.connecting) await once(session, 'connect'); // Node cancels earlier pings
  await new Promise<void>((resolve, reject) =>
    session.ping((reason) => (reason === null ? resolve() : reject(reason))),
  );
}

/** Resolves when the server has read all bytes that clients sent before. */
async function makeRoundTrip(url: string): Promise<void> {
  await http1(url, { path: '/nothing' });
  await settle();
}

/** Resolves when the server has `count` open connections. */
async function waitForConnections(
  server: { readonly openConnections: number },
  count: number,
): Promise<void> {
  while (server.openConnections < count) await new Promise((resolve) => setImmediate(resolve));
}
