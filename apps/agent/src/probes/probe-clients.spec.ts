import { createServer as createHttpServer, type RequestListener } from 'node:http';
import * as http2 from 'node:http2';
import net, { type AddressInfo, type Server } from 'node:net';
import { connectNodeAdapter } from '@connectrpc/connect-node';
import { Health, HealthCheckResponse_ServingStatus as Status } from '@cloudless/api/grpc';
import { checkGrpc } from './check-grpc.js';
import { checkHttp } from './check-http.js';

const undo: (() => Promise<unknown>)[] = [];
const ip = '127.0.0.1';

/** Starts a server until the test ends, with the number of open connections. */
async function serving(server: Server): Promise<{
  readonly port: number;
  readonly open: () => number;
  readonly quiet: () => Promise<void>;
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
  undo.push(async () => {
    for (const socket of open) socket.destroy();
    await new Promise((resolve) => server.close(resolve));
  });
  const quiet = async (): Promise<void> => {
    while (open.size > 0) await new Promise<void>((resolve) => (changed = resolve));
  };
  return { port: (server.address() as AddressInfo).port, open: () => open.size, quiet };
}

const answering = (listener: RequestListener) => serving(createHttpServer(listener));

/** A port on which no server listens. */
async function closedPort(): Promise<number> {
  const { port } = await serving(net.createServer());
  await undo.pop()?.();
  return port;
}

afterEach(async () => {
  for (const step of undo.splice(0)) await step();
});

const never = new AbortController().signal;
const get = (
  port: number,
  more: { path?: string; headers?: Record<string, string> } = {},
  signal = never,
) => checkHttp({ ip, port, path: more.path ?? '/', headers: more.headers ?? {} }, signal);

describe('httpCheck', () => {
  it('sends a GET with the path and its own headers, unless others are given', async () => {
    const seen: unknown[] = [];
    const { port } = await answering(({ method, url, headers }, response) => {
      seen.push([
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
    expect(seen).toEqual([
      ['GET', '/healthz?deep=1', 'cloudless-probe', '*/*', `${ip}:${port}`, undefined],
      ['GET', '/', 'cloudless-probe', 'text/plain', 'shop', 'b'],
    ]);
  });

  it.each([200, 204, 302, 404, 500])(
    'resolves with status %i and follows no redirect',
    async (status) => {
      let requests = 0;
      const { port, quiet } = await answering((_request, response) => {
        requests += 1;
        response.writeHead(status, { location: '/elsewhere' }).end();
      });
      expect(await get(port)).toBe(status);
      expect(requests).toBe(1);
      await quiet(); // no connection is kept
    },
  );

  it('resolves with the status and closes the connection when the body never ends', async () => {
    const { port, quiet } = await answering((_request, response) => {
      const more = (): void => {
        while (response.write('x'.repeat(16_384)));
      };
      response.on('drain', more);
      more();
    });
    expect(await get(port)).toBe(200);
    await quiet();
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
  ])('rejects for $name: $message', async ({ server, message }) => {
    const port = server === undefined ? await closedPort() : (await serving(server())).port;
    await expect(get(port)).rejects.toMatchObject({ kind: 'unavailable', message });
  });

  it('aborts with its signal and leaves nothing open', async () => {
    const stop = new AbortController();
    const { port, quiet } = await answering(() => stop.abort());
    await expect(get(port, {}, stop.signal)).rejects.toThrow();
    await quiet();
  });
});

describe('grpcCheck', () => {
  const health = (check: (service: string) => Status) =>
    serving(
      http2.createServer(
        connectNodeAdapter({
          routes: (router) =>
            router.service(Health, { check: ({ service }) => ({ status: check(service) }) }),
        }),
      ) as unknown as Server,
    );
  const ask = (port: number, service = '', signal = never) =>
    checkGrpc({ ip, port, service }, signal);

  it('sends the service name, resolves with the status name and keeps no connection open', async () => {
    const { port, quiet } = await health((service) =>
      service === 'shop.Cart' ? Status.NOT_SERVING : Status.SERVING,
    );
    expect([await ask(port), await ask(port, 'shop.Cart')]).toEqual(['SERVING', 'NOT_SERVING']);
    await quiet();
  });

  it('rejects with the gRPC status when the server does not implement the health service', async () => {
    const { port } = await serving(
      http2.createServer(connectNodeAdapter({ routes: () => undefined })) as unknown as Server,
    );
    await expect(ask(port, 'x')).rejects.toMatchObject({ message: 'gRPC unimplemented: HTTP 404' });
  });

  it('rejects for a closed port', async () => {
    await expect(ask(await closedPort())).rejects.toMatchObject({
      kind: 'unavailable',
      message: 'connection refused',
    });
  });

  it('rejects for an HTTP/1.1 server', async () => {
    const { port, quiet } = await answering((_request, response) => response.end('hello'));
    await expect(ask(port)).rejects.toMatchObject({
      kind: 'unavailable',
      message: 'the server does not speak HTTP/2',
    });
    await quiet();
  });

  it('aborts with its signal and leaves nothing open', async () => {
    const stop = new AbortController();
    const { port, quiet } = await serving(
      net.createServer((socket) => socket.once('data', () => stop.abort())),
    );
    await expect(ask(port, '', stop.signal)).rejects.toThrow();
    await quiet();
  });
});
