import * as http2 from 'node:http2';
import * as net from 'node:net';
import { once } from 'node:events';
import { brotliCompressSync, constants, gzipSync } from 'node:zlib';
import { Code, ConnectError, createClient, type Transport } from '@connectrpc/connect';
import {
  compressionBrotli,
  compressionGzip,
  createConnectTransport,
  createGrpcTransport,
  createGrpcWebTransport,
} from '@connectrpc/connect-node';
import { settle } from '@cloudless/base/testing';
import { CoordinatorService, beginLongWaitKey } from '@cloudless/api';
import { defaultRpcLimits, type RpcServer } from '../options.js';
import { aLog, serversOfTest } from '../testing/fixture.js';
import { CREATE_PATH, envelope, http1, http2Request, JSON_TYPE } from '../testing/raw-http.js';
import { RETRY_AFTER_HEADER } from './retryable-error.js';

const open = serversOfTest(afterEach);
const { createWorkload, getWorkload, watchWorkloads } = CoordinatorService.method;
const MIB = 1024 * 1024;
const noCapacity = { running: 0, waiting: 0, waitMs: 1 };

const transports: readonly {
  readonly name: string;
  readonly make: (baseUrl: string) => Transport;
}[] = [
  {
    name: 'Connect over HTTP/2',
    make: (baseUrl) => createConnectTransport({ baseUrl, httpVersion: '2' }),
  },
  {
    name: 'Connect over HTTP/1.1, JSON',
    make: (baseUrl) =>
      createConnectTransport({ baseUrl, httpVersion: '1.1', useBinaryFormat: false }),
  },
  { name: 'gRPC', make: (baseUrl) => createGrpcTransport({ baseUrl }) },
  { name: 'gRPC-Web', make: (baseUrl) => createGrpcWebTransport({ baseUrl, httpVersion: '1.1' }) },
];

describe.each(transports)('a refused call over $name', ({ make }) => {
  it('fails with the reason and the retry delay, as a unary call and as a stream', async () => {
    const { url } = await open({
      limits: { priorities: { ...defaultRpcLimits.priorities, write: noCapacity } },
    });
    const client = createClient(CoordinatorService, make(url));
    const calls = [
      () => client.getWorkload({}),
      () => client.watchWorkloads({})[Symbol.asyncIterator]().next(),
    ];
    for (const call of calls) {
      const error = await call().then(
        () => Promise.reject(new Error('was served')),
        (reason: unknown) => ConnectError.from(reason),
      );
      expect(error).toMatchObject({
        code: Code.ResourceExhausted,
        rawMessage: 'too many write calls are waiting on the server; try again in 1 s',
      });
      expect(error.metadata.get(RETRY_AFTER_HEADER)).toBe('1000');
    }
  });

  it('never reaches its handler', async () => {
    let called = 0;
    const { url } = await open({
      limits: { priorities: { ...defaultRpcLimits.priorities, write: noCapacity } },
      registerRoutes: (router) => router.rpc(getWorkload, () => ({ name: String((called += 1)) })),
    });
    await createClient(CoordinatorService, make(url))
      .getWorkload({})
      .catch(() => undefined);
    expect(called).toBe(0);
  });
});

describe('a request message', () => {
  it.each(
    [compressionGzip, compressionBrotli].flatMap((sendCompression) =>
      [
        { name: 'Connect', make: createConnectTransport },
        { name: 'gRPC', make: createGrpcTransport },
        { name: 'gRPC-Web', make: createGrpcWebTransport },
      ].map(({ name, make }) => ({ name, encoding: sendCompression.name, make, sendCompression })),
    ),
  )('is served in $name when compressed with $encoding', async ({ make, sendCompression }) => {
    const { url } = await open();
    const transport = make({
      baseUrl: url,
      httpVersion: '2',
      sendCompression,
      compressMinBytes: 1,
    });
    const name = 'x'.repeat(10_000);
    const workload = await createClient(CoordinatorService, transport).getWorkload({ name });
    expect(workload.name).toBe(name);
  });

  it.each([
    { encoding: 'gzip', compress: gzipSync },
    {
      encoding: 'br',
      compress: (bytes: Buffer) =>
        brotliCompressSync(bytes, { params: { [constants.BROTLI_PARAM_QUALITY]: 1 } }),
    },
  ])(
    'gets RESOURCE_EXHAUSTED in each protocol when it is too large after $encoding decompression',
    async ({ encoding, compress }) => {
      const { url } = await open();
      const bomb = compress(Buffer.alloc(16 * MIB));
      const unary = await http1(url, {
        headers: { ...JSON_TYPE, 'content-encoding': encoding },
        body: bomb,
      });
      expect({ status: unary.status, text: unary.body.toString() }).toMatchObject({
        status: 429,
        text: expect.stringContaining('4194304'),
      });
      const framed = envelope(bomb);
      framed[0] = 1;
      const headers = { 'content-type': 'application/grpc', 'grpc-encoding': encoding };
      expect((await http2Request(url, { headers, body: framed })).trailers).toMatchObject({
        'grpc-status': '8',
      });
    },
  );

  it('gets RESOURCE_EXHAUSTED in each protocol when it has too many parts, plain or compressed', async () => {
    const { url } = await open();
    const json = `{"spec":{"ports":[${'{},'.repeat(20_000)}{}]}}`;
    const binary = Buffer.alloc(60_000, Buffer.from([0x78, 1]));
    const message = expect.stringContaining(
      'more than 20000 fields, elements and entries',
    ) as string;
    const refused = expect.objectContaining({ code: 'resource_exhausted', message }) as object;
    expect(JSON.parse((await http1(url, { body: json })).body.toString())).toEqual(refused);
    const proto = { 'content-type': 'application/proto' };
    expect(
      JSON.parse((await http1(url, { headers: proto, body: binary })).body.toString()),
    ).toEqual(refused);
    const gzip = { ...JSON_TYPE, 'content-encoding': 'gzip' };
    expect(
      JSON.parse((await http1(url, { headers: gzip, body: gzipSync(json) })).body.toString()),
    ).toEqual(refused);
    const grpc = await http2Request(url, {
      headers: { 'content-type': 'application/grpc' },
      body: envelope(binary),
    });
    expect(decodeURIComponent(String(grpc.trailers['grpc-message']))).toEqual(message);
  });
});

async function* silence(): AsyncGenerator<never> {
  await new Promise(() => undefined);
}

describe('a slow request body', () => {
  it('does not count as a running call of its priority', async () => {
    const { url, address } = await open({
      limits: {
        priorities: {
          ...defaultRpcLimits.priorities,
          write: { running: 1, waiting: 0, waitMs: 1 },
        },
      },
    });
    const socket = net.connect(address.port, address.host).on('error', () => undefined);
    socket.write(
      `POST ${CREATE_PATH} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\n{`,
    );
    await http1(url, { path: '/nothing' });
    expect(await http1(url, { body: '{}' })).toMatchObject({ status: 200 });
    socket.destroy();
  });

  it('leaves its place to other calls once its handler begins a long wait', async () => {
    let endWait = (): void => undefined;
    const { url } = await open({
      limits: {
        priorities: {
          ...defaultRpcLimits.priorities,
          write: { running: 1, waiting: 0, waitMs: 1 },
        },
      },
      registerRoutes: (router) =>
        router
          .rpc(createWorkload, () => ({ name: 'created' }))
          .rpc(CoordinatorService.method.session, async function* (_messages, { values }) {
            values.get(beginLongWaitKey)?.();
            await new Promise<void>((resolve) => (endWait = resolve));
            yield {};
          }),
    });
    const client = createClient(CoordinatorService, createGrpcTransport({ baseUrl: url }));
    const session = client.session(silence())[Symbol.asyncIterator]();
    const first = session.next();
    while (
      !(await client.createWorkload({}).then(
        () => true,
        () => false,
      ))
    )
      await new Promise((resolve) => setImmediate(resolve));
    endWait();
    expect((await first).done).toBe(false);
    await session.return?.();
  });

  it('adds the request head and the received bytes to waitingRequestBytes', async () => {
    const server = await open();
    const session = http2.connect(server.url).on('error', () => undefined);
    const head = {
      ':method': 'POST',
      ':path': CREATE_PATH,
      ...JSON_TYPE,
      'x-large': 'x'.repeat(10_000),
    };
    const stream = session.request(head).on('error', () => undefined);
    stream.write(Buffer.alloc(5_000, ' '));
    while (server.getLoad().waitingRequestBytes < 19_000)
      await new Promise((resolve) => setImmediate(resolve));
    expect(server.getLoad().waitingRequestBytes).toBeLessThan(21_000);
    session.destroy();
  });

  it('is aborted when the slow bodies of all clients take too much memory', async () => {
    const server = await open({ limits: { waitingRequestBytes: MIB } });
    const session = http2.connect(server.url).on('error', () => undefined);
    const head = { ':method': 'POST', ':path': CREATE_PATH, ...JSON_TYPE };
    const streams = Array.from({ length: 40 }, () =>
      session.request(head).on('error', () => undefined),
    );
    const firstReset = Promise.race(streams.map((stream) => waitForReset(stream)));
    for (const stream of streams) stream.write(Buffer.alloc(60_000, ' '));
    expect(await firstReset).toBe(http2.constants.NGHTTP2_ENHANCE_YOUR_CALM);
    expect(server.getLoad().waitingRequestBytes).toBeLessThanOrEqual(MIB);
    session.destroy();
  });
});

describe('an unread response', () => {
  /** Opens a server whose watch sends messages of 1 MiB without end, and counts them. */
  async function anEndlessWatch() {
    const sent = { items: 0, ended: false };
    const log = aLog();
    const server = await open({
      log,
      registerRoutes: (router) =>
        router.rpc(watchWorkloads, async function* () {
          try {
            for (;;) {
              sent.items += 1;
              yield { workload: { name: 'x'.repeat(MIB) } };
            }
          } finally {
            sent.ended = true;
          }
        }),
    });
    return { server, sent, log };
  }

  /** Opens a watch that reads the response head and no more. */
  async function openUnreadWatch(url: string): Promise<{
    readonly session: http2.ClientHttp2Session;
    readonly stream: http2.ClientHttp2Stream;
  }> {
    const session = http2.connect(url).on('error', () => undefined);
    const stream = session.request({
      ':method': 'POST',
      ':path': '/cloudless.api.CoordinatorService/WatchWorkloads',
      'content-type': 'application/grpc',
    });
    stream.on('error', () => undefined).end(envelope(''));
    await once(stream, 'response');
    return { session, stream };
  }

  it('holds one item in memory, ends its handler after 30 s and is reset after 60 s', async () => {
    const { server, sent, log } = await anEndlessWatch();
    const { session, stream } = await openUnreadWatch(server.url);
    await settle();
    expect(sent).toEqual({ items: 1, ended: false });
    expect(server.getLoad().unreadResponseBytes).toBeLessThan(2 * MIB);
    await server.clock.advance(29_999);
    expect(sent.ended).toBe(false);
    await server.clock.advance(1);
    expect(sent).toEqual({ items: 1, ended: true });
    expect(log.lines).toContainEqual(
      expect.objectContaining({
        level: 'warn',
        message: 'call ended: its client did not read the response',
      }),
    );
    const closed = waitForReset(stream);
    await server.clock.advance(30_000);
    stream.resume();
    expect(await closed).toBe(http2.constants.NGHTTP2_ENHANCE_YOUR_CALM);
    await waitForNoStreams(server);
    expect(server.getLoad()).toMatchObject({
      unreadResponseBytes: 0,
      streams: 0,
      slowReadersAborted: 1,
    });
    session.destroy();
  });

  it('ends with the reason when the client reads on within 30 s after the abort', async () => {
    const { server } = await anEndlessWatch();
    const { session, stream } = await openUnreadWatch(server.url);
    await settle();
    await server.clock.advance(30_000);
    const trailers = once(stream, 'trailers');
    stream.resume();
    const [fields] = (await trailers) as [Record<string, string>];
    expect(fields['grpc-status']).toBe('8');
    expect(decodeURIComponent(fields['grpc-message'] ?? '')).toBe(
      'the response was not read for 30 s; read it while it arrives, or ask for less',
    );
    session.destroy();
  });

  it('delays the next calls of its client, but not calls of other clients', async () => {
    const size = 300_000;
    const { url, clock } = await open({
      limits: {
        unreadResponseBytesPerPrincipal: 2.5 * size,
        priorities: {
          ...defaultRpcLimits.priorities,
          write: { running: 100, waiting: 100, waitMs: 1_000 },
        },
      },
      registerRoutes: (router) => router.rpc(createWorkload, () => ({ name: 'x'.repeat(size) })),
    });
    const session = http2
      .connect(url, { settings: { initialWindowSize: 0 } })
      .on('error', () => undefined);
    const request = () => {
      const stream = session.request({
        ':method': 'POST',
        ':path': CREATE_PATH,
        'content-type': 'application/grpc',
      });
      return stream.on('error', () => undefined).end(envelope(''));
    };
    for (let count = 0; count < 3; count += 1) await once(request(), 'response');
    const fourth = once(request(), 'trailers');
    await new Promise<void>((resolve) => session.ping(() => resolve()));
    expect(await http1(url, { body: '{}' })).toMatchObject({ status: 200 });
    await clock.advance(1_000);
    // without a flow-control window not even the end of a response arrives
    session.settings({ initialWindowSize: 65_535 });
    const [fields] = (await fourth) as [Record<string, string>];
    expect(fields).toMatchObject({
      'grpc-status': '8',
      'grpc-message': expect.stringContaining('waited') as string,
    });
    session.destroy();
  });
});

describe('startRpcServer', () => {
  it('counts streams by connection until they end, when no principal is given', async () => {
    const server = await open({
      limits: { streamsPerPrincipal: 1 },
      registerRoutes: (router) =>
        router.rpc(watchWorkloads, async function* (_request, { signal }) {
          yield {};
          await new Promise((resolve) => signal.addEventListener('abort', resolve));
        }),
    });
    const client = createClient(CoordinatorService, createGrpcTransport({ baseUrl: server.url }));
    const first = new AbortController();
    const watch = client.watchWorkloads({}, { signal: first.signal })[Symbol.asyncIterator]();
    await watch.next();
    await expect(client.watchWorkloads({})[Symbol.asyncIterator]().next()).rejects.toMatchObject({
      code: Code.ResourceExhausted,
      rawMessage: 'this client has 1 streams open, the limit of one client; close some first',
    });
    const other = createClient(CoordinatorService, createGrpcTransport({ baseUrl: server.url }));
    const second = other.watchWorkloads({})[Symbol.asyncIterator]();
    await second.next();
    first.abort();
    while (server.getLoad().streams > 1) await new Promise((resolve) => setImmediate(resolve));
    void second.return?.();
  });

  it('counts a long-running unary call as a stream', async () => {
    let finish: () => void = () => undefined;
    const finished = new Promise<void>((resolve) => (finish = resolve));
    const server = await open({
      limits: { streamsPerPrincipal: 1 },
      classifyCall: ({ name }) => ({ priority: 'write', longRunning: name === 'GetWorkload' }),
      registerRoutes: (router) =>
        router.rpc(getWorkload, async () => {
          await finished;
          return {};
        }),
    });
    const client = createClient(CoordinatorService, createGrpcTransport({ baseUrl: server.url }));
    const first = client.getWorkload({});
    while (server.getLoad().streams < 1) await new Promise((resolve) => setImmediate(resolve));
    await expect(client.getWorkload({})).rejects.toMatchObject({ code: Code.ResourceExhausted });
    finish();
    await first;
  });

  it('limits the streams of one address across all its connections', async () => {
    const server = await open({
      limits: { streamsPerPeer: 2 },
      registerRoutes: (router) =>
        router.rpc(watchWorkloads, async function* (_request, { signal }) {
          yield {};
          await new Promise((resolve) => signal.addEventListener('abort', resolve));
        }),
    });
    const watch = () => {
      const client = createClient(CoordinatorService, createGrpcTransport({ baseUrl: server.url }));
      return client.watchWorkloads({})[Symbol.asyncIterator]();
    };
    const watches = [watch(), watch()];
    await Promise.all(watches.map((items) => items.next()));
    await expect(watch().next()).rejects.toMatchObject({
      code: Code.ResourceExhausted,
      rawMessage:
        'clients at loopback have 2 streams open, the limit of one address; close some first',
    });
    for (const items of watches) void items.return?.();
  });

  it('counts the streams that another server forwards against the addresses of their clients', async () => {
    const server = await open({
      limits: { streamsPerPeer: 1 },
      authorize: ({ header }) => {
        const address = header.get('client') ?? '';
        const principal = { kind: 'controller', name: address } as const;
        return { principal, address, connectionId: 'c1', check: () => undefined };
      },
      registerRoutes: (router) =>
        router.rpc(watchWorkloads, async function* (_request, { signal }) {
          yield {};
          await new Promise((resolve) => signal.addEventListener('abort', resolve));
        }),
    });
    const client = createClient(CoordinatorService, createGrpcTransport({ baseUrl: server.url }));
    const watch = (address: string) =>
      client.watchWorkloads({}, { headers: { client: address } })[Symbol.asyncIterator]();
    const watches = [watch('192.0.2.1'), watch('192.0.2.2')];
    await Promise.all(watches.map((items) => items.next()));
    await expect(watch('192.0.2.1').next()).rejects.toMatchObject({
      rawMessage:
        'clients at 192.0.2.1 have 1 streams open, the limit of one address; close some first',
    });
    for (const items of watches) void items.return?.();
  });

  it('serves other calls while an interleaved watch sends a large snapshot', async () => {
    let sentCount = 0;
    const server = await open({
      classifyCall: ({ name }) => ({ priority: 'read', interleaved: name === 'WatchWorkloads' }),
      registerRoutes: (router) => {
        router.rpc(watchWorkloads, async function* () {
          for (let count = 0; count < 5_000; count += 1, sentCount += 1) yield {};
        });
        router.rpc(getWorkload, () => ({ name: String(sentCount) }));
      },
    });
    const watcher = createClient(CoordinatorService, createGrpcTransport({ baseUrl: server.url }));
    const other = createClient(CoordinatorService, createGrpcTransport({ baseUrl: server.url }));
    await other.getWorkload({});
    const watch = watcher.watchWorkloads({})[Symbol.asyncIterator]();
    await watch.next();
    const { name } = await other.getWorkload({});
    expect(Number(name)).toBeLessThan(5_000);
    let received = 1;
    for (let item = await watch.next(); item.done !== true; item = await watch.next())
      received += 1;
    expect(received).toBe(5_000);
  });

  it('refuses a request that is larger than its RPC accepts, before the call is admitted', async () => {
    const { url } = await open({
      classifyCall: ({ name }) => ({
        priority: 'write',
        ...(name === 'CreateWorkload' ? { maxRequestBytes: 1_024 } : {}),
      }),
    });
    const post = (rpc: string, name: string) =>
      fetch(`${url}/cloudless.api.CoordinatorService/${rpc}`, {
        method: 'POST',
        headers: { 'content-type': 'application/json' },
        body: JSON.stringify({ name }),
      });
    const refused = await post('CreateWorkload', 'x'.repeat(1_100));
    expect(refused.status).toBe(429);
    expect(await refused.json()).toMatchObject({
      code: 'resource_exhausted',
      message: 'the request is larger than the 1024 bytes that CreateWorkload accepts',
    });
    expect((await post('CreateWorkload', 'x'.repeat(900))).status).toBe(200);
    expect((await post('GetWorkload', 'x'.repeat(1_100))).status).toBe(200);
  });

  it('rejects when classifyCall returns undefined for an RPC', async () => {
    await expect(
      open({
        classifyCall: ({ name }) => (name === 'GetWorkload' ? undefined : { priority: 'read' }),
      }),
    ).rejects.toThrow('cloudless.api.CoordinatorService/GetWorkload has no priority');
  });
});

/** Resolves with the code by which a stream was reset. */
function waitForReset(stream: http2.ClientHttp2Stream): Promise<number | undefined> {
  return new Promise((resolve) => stream.once('close', () => resolve(stream.rstCode)));
}

/** Resolves when the server has no open streams. */
async function waitForNoStreams(server: RpcServer): Promise<void> {
  while (server.getLoad().streams > 0) await new Promise((resolve) => setImmediate(resolve));
}
