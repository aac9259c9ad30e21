import { createServer as createHttpServer, type RequestListener } from 'node:http';
import * as http2 from 'node:http2';
import net, { type AddressInfo, type Server } from 'node:net';
import { connectNodeAdapter } from '@connectrpc/connect-node';
import { Health, HealthCheckResponse_ServingStatus as Status } from '@cloudless/api/grpc';
import { checkGrpc } from './check-grpc.js';
import { checkHttp } from './check-http.js';
import { checkTcp } from './check-tcp.js';

const cleanup: (() => Promise<unknown>)[] = [];
const ip = '127.0.0.1';

/**
 * Starts a server until the test ends.
 * @returns Its port, the number of open connections, and a function that resolves at 0 connections.
 */
async function startServer(server: Server): Promise<{
  readonly port: number;
  readonly open: () => number;
  readonly waitUntilClosed: () => Promise<void>;
}> {
  const open = new Set<net.Socket>();
  let changed = (): void => undefined;
  server.on('connection', (socket: net.Socket) => {
    open.add(socket);
    socket.on('close', () => {
      open.delete(socket);
      changed();
    });
    socket.on('error', () => undefined);
  });
  await new Promise<void>((resolve) => server.listen(0, ip, resolve));
  cleanup.push(async () => {
    for (const socket of open) socket.destroy();
    await new Promise((resolve) => server.close(resolve));
  });
  const waitUntilClosed = async (): Promise<void> => {
    while (open.size > 0) await new Promise<void>((resolve) => (changed = resolve));
  };
  return { port: (server.address() as AddressInfo).port, open: () => open.size, waitUntilClosed };
}

const startHttpServer = (listener: RequestListener) => startServer(createHttpServer(listener));

/** A port on which no server listens. */
async function closedPort(): Promise<number> {
  const { port } = await startServer(net.createServer());
  await cleanup.pop()?.();
  return port;
}

afterEach(async () => {
  for (const step of cleanup.splice(0)) await step();
});

const neverAborted = new AbortController().signal;
const get = (
  port: number,
  fields: { path?: string; headers?: Record<string, string> } = {},
  signal = neverAborted,
) => checkHttp({ ip, port, path: fields.path ?? '/', headers: fields.headers ?? {} }, signal);

describe('checkHttp', () => {
  it('sends a GET request with the path and default headers, which given headers replace', async () => {
    const receivedRequests: unknown[] = [];
    const { port } = await startHttpServer(({ method, url, headers }, response) => {
      receivedRequests.push([
        method,
        url,
        headers['user-agent']?.split('/')[0],
        headers.accept,
        headers.host,
        headers['x-a'],
      ]);
      response.end();
    });
    await get(port, { path: '/healthz?deep=1' });
    await get(port, { headers: { Host: 'shop', 'X-A': 'b', ACCEPT: 'text/plain' } });
    expect(receivedRequests).toEqual([
      ['GET', '/healthz?deep=1', 'cloudless-probe', '*/*', `${ip}:${port}`, undefined],
      ['GET', '/', 'cloudless-probe', 'text/plain', 'shop', 'b'],
    ]);
  });

  it.each([200, 204, 302, 404, 500])(
    'resolves with status %i and follows no redirect',
    async (status) => {
      let requests = 0;
      const { port, waitUntilClosed } = await startHttpServer((_request, response) => {
        requests += 1;
        response.writeHead(status, { location: '/elsewhere' }).end();
      });
      expect(await get(port)).toBe(status);
      expect(requests).toBe(1);
      await waitUntilClosed(); // waits until the connection is closed
    },
  );

  it('resolves with the status and closes the connection when the body never ends', async () => {
    const { port, waitUntilClosed } = await startHttpServer((_request, response) => {
      const writeMore = (): void => {
        while (response.write('x'.repeat(16_384)));
      };
      response.on('drain', writeMore);
      writeMore();
    });
    expect(await get(port)).toBe(200);
    await waitUntilClosed();
  });

  it.each([
    { name: 'a closed port', server: undefined, message: 'connection refused' },
    {
      name: 'a server that closes the connection',
      server: () => net.createServer((socket) => socket.on('data', () => socket.end())),
      message: 'connection closed without an answer',
    },
    {
      name: 'a server of another protocol',
      server: () =>
        net.createServer((socket) =>
          socket.on('data', () => socket.end('220 mail.example ESMTP\r\n')),
        ),
      message: 'the answer is not HTTP/1.1',
    },
  ])('rejects $name with "$message"', async ({ server, message }) => {
    const port = server === undefined ? await closedPort() : (await startServer(server())).port;
    await expect(get(port)).rejects.toMatchObject({ kind: 'unavailable', message });
  });

  it('rejects and closes its connection when its signal is aborted', async () => {
    const stop = new AbortController();
    const { port, waitUntilClosed } = await startHttpServer(() => stop.abort());
    await expect(get(port, {}, stop.signal)).rejects.toThrow();
    await waitUntilClosed();
  });
});

describe('checkTcp', () => {
  it('resolves when a server accepts the connection, and keeps none open', async () => {
    const { port, waitUntilClosed } = await startServer(net.createServer());
    await checkTcp({ ip, port }, neverAborted);
    await waitUntilClosed();
  });

  it('rejects a closed port with "connection refused"', async () => {
    await expect(checkTcp({ ip, port: await closedPort() }, neverAborted)).rejects.toMatchObject({
      kind: 'unavailable',
      message: 'connection refused',
    });
  });

  it('rejects when its signal is aborted', async () => {
    await expect(checkTcp({ ip, port: 1 }, AbortSignal.abort())).rejects.toThrow();
  });
});

describe('checkGrpc', () => {
  const health = (check: (service: string) => Status) =>
    startServer(
      http2.createServer(
        connectNodeAdapter({
          routes: (router) =>
            router.service(Health, { check: ({ service }) => ({ status: check(service) }) }),
        }),
      ) as unknown as Server,
    );
  const checkHealth = (port: number, service = '', signal = neverAborted) =>
    checkGrpc({ ip, port, service }, signal);

  it('sends the service name, resolves with the status name and keeps no connection open', async () => {
    const { port, waitUntilClosed } = await health((service) =>
      service === 'shop.Cart' ? Status.NOT_SERVING : Status.SERVING,
    );
    expect([await checkHealth(port), await checkHealth(port, 'shop.Cart')]).toEqual([
      'SERVING',
      'NOT_SERVING',
    ]);
    await waitUntilClosed();
  });

  it('rejects with the gRPC status when the server does not implement the health service', async () => {
    const { port } = await startServer(
      http2.createServer(connectNodeAdapter({ routes: () => undefined })) as unknown as Server,
    );
    await expect(checkHealth(port, 'x')).rejects.toMatchObject({
      message: 'gRPC unimplemented: HTTP 404',
    });
  });

  it('rejects a closed port with "connection refused"', async () => {
    await expect(checkHealth(await closedPort())).rejects.toMatchObject({
      kind: 'unavailable',
      message: 'connection refused',
    });
  });

  it('rejects an HTTP/1.1 server with "the server does not speak HTTP/2"', async () => {
    const { port, waitUntilClosed } = await startHttpServer((_request, response) =>
      response.end('hello'),
    );
    await expect(checkHealth(port)).rejects.toMatchObject({
      kind: 'unavailable',
      message: 'the server does not speak HTTP/2',
    });
    await waitUntilClosed();
  });

  it('rejects and closes its connection when its signal is aborted', async () => {
    const stop = new AbortController();
    const { port, waitUntilClosed } = await startServer(
      net.createServer((socket) => socket.once('data', () => stop.abort())),
    );
    await expect(checkHealth(port, '', stop.signal)).rejects.toThrow();
    await waitUntilClosed();
  });
});
