import { mkdtemp, rename, rm, writeFile } from 'node:fs/promises';
import type http from 'node:http';
import http2 from 'node:http2';
import https from 'node:https';
import type net from 'node:net';
import { once } from 'node:events';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import tls from 'node:tls';
import { aRoute } from '../testing/builders.js';
import { createTestCertificate, type TestCertificate } from '../testing/certificates.js';
import { readAnswer, readText, TestIngress, type TestAnswer } from '../testing/test-ingress.js';

describe('HTTP ingress with TLS', () => {
  let directory: string;
  let shop: TestCertificate;
  let blog: TestCertificate;
  let test: TestIngress;
  const closers: (() => void)[] = [];
  beforeAll(async () => {
    directory = await mkdtemp(join(tmpdir(), 'ingress-'));
    shop = await createTestCertificate(directory, 'shop', [
      'shop.example.com',
      '*.shop.example.com',
    ]);
    blog = await createTestCertificate(directory, 'blog', ['blog.example.com']);
  });
  afterAll(() => rm(directory, { recursive: true }));
  beforeEach(() => {
    test = new TestIngress();
  });
  afterEach(() => {
    for (const close of closers.splice(0)) close();
    test.close();
  });

  const shopRoute = () => aRoute({ hosts: ['shop.example.com'], tls: shop });
  const blogRoute = () => aRoute({ name: 'blog', hosts: ['blog.example.com'], tls: blog });

  const getTls = async (
    servername: string,
    host = servername,
    options: https.RequestOptions = {},
  ): Promise<TestAnswer> => {
    const request = https.request({
      ...{ host: '127.0.0.1', port: test.httpsPort, servername, agent: false },
      ...{ ca: [shop.pem, blog.pem], headers: { host }, ...options },
    });
    request.end();
    const [response] = (await once(request, 'response')) as [http.IncomingMessage];
    return readAnswer(response);
  };

  const connectHttp2 = (name: string): http2.ClientHttp2Session => {
    const session = http2.connect(`https://${name}:${test.httpsPort}`, {
      ca: [shop.pem, blog.pem],
      createConnection: () =>
        tls.connect({
          ...{ host: '127.0.0.1', port: test.httpsPort, servername: name },
          ...{ ca: [shop.pem, blog.pem], ALPNProtocols: ['h2'] },
        }),
    });
    session.on('error', () => undefined);
    closers.push(() => session.destroy());
    return session;
  };

  /** Sends one request over HTTP/2 and reads the whole answer. */
  const send = async (
    session: http2.ClientHttp2Session,
    headers: http2.OutgoingHttpHeaders,
    body?: string,
  ) => {
    const stream = session.request(headers, { endStream: body === undefined });
    if (body !== undefined) stream.end(body);
    let trailers: http2.IncomingHttpHeaders = {};
    stream.on('trailers', (received: http2.IncomingHttpHeaders) => (trailers = received));
    const [received, flags] = (await once(stream, 'response')) as [
      http2.IncomingHttpHeaders,
      number,
    ];
    const text = await readText(stream);
    return { headers: received, flags, body: text, trailers, status: received[':status'] };
  };

  it('gives each name its certificate, and refuses the handshake for other names', async () => {
    await test.addHttp('web', (req, res) => res.end(req.headers['x-forwarded-proto']));
    await test.start([shopRoute(), blogRoute()]);
    expect(await getTls('shop.example.com')).toMatchObject({ status: 200, body: 'https' });
    expect(await getTls('blog.example.com')).toMatchObject({ status: 200 });
    await expect(getTls('other.example.com')).rejects.toThrow();
    await expect(getTls('')).rejects.toThrow(/handshake failure|disconnected|reset/);
  });

  it('serves a certificate for every host to clients without a name', async () => {
    await test.addHttp('web', (_req, res) => res.end('ok'));
    await test.start([aRoute({ tls: shop })]);
    const anyName = { checkServerIdentity: () => undefined };
    expect(await getTls('', 'shop.example.com', anyName)).toMatchObject({ status: 200 });
    expect(await getTls('unknown.example', undefined, anyName)).toMatchObject({ status: 200 });
    await test.ingress.setRoutes([]);
    await expect(getTls('', 'shop.example.com', anyName)).rejects.toThrow();
  });

  it('answers 421 for a host of another certificate, on a connection for one name', async () => {
    await test.addHttp('web', (_req, res) => res.end('ok'));
    await test.start([
      shopRoute(),
      blogRoute(),
      aRoute({ name: 'plain', hosts: ['plain.example'] }),
    ]);
    expect((await getTls('shop.example.com', 'blog.example.com')).status).toBe(421);
    expect((await getTls('shop.example.com', 'plain.example')).status).toBe(421);
  });

  it('redirects to https with the same host, path and query', async () => {
    await test.start([{ ...shopRoute(), redirectToHttps: true }]);
    const { status, headers } = await test.get('Shop.example.com:80', '/a?b=c');
    expect(status).toBe(308);
    expect(headers.location).toBe(`https://shop.example.com:${test.httpsPort}/a?b=c`);
  });

  it('serves HTTP/2 to clients and HTTP/1.1 to endpoints', async () => {
    await test.addHttp('web', (req, res) => {
      let body = '';
      req.on('data', (chunk: Buffer) => (body += chunk.toString()));
      req.on('end', () => res.end(`${req.method} ${req.headers.host} ${body}`));
    });
    await test.start([shopRoute()]);
    const session = connectHttp2('shop.example.com');
    const pseudo = { ':path': '/', ':authority': 'shop.example.com' };
    const answers = await Promise.all([
      send(session, pseudo),
      send(session, { ...pseudo, ':method': 'POST' }, 'hello'),
    ]);
    expect(answers.map(({ body }) => body)).toEqual([
      'GET shop.example.com ',
      'POST shop.example.com hello',
    ]);
    expect((await send(session, { ...pseudo, ':path': '/../x' })).status).toBe(400);
    expect((await send(session, { ...pseudo, ':authority': 'x.example' })).status).toBe(421);
  });

  const grpc = {
    ...{ ':method': 'POST', ':path': '/shop.Cart/Add', ':authority': 'shop.example.com' },
    ...{ 'content-type': 'application/grpc', te: 'trailers' },
  };

  it('carries a gRPC call in both directions, with its trailers', async () => {
    await test.addHttp2('web', (stream, headers) => {
      stream.respond(
        { ':status': 200, 'content-type': 'application/grpc', 'x-te': headers.te },
        { waitForTrailers: true },
      );
      // Each message is answered before the next one is sent.
      stream.on('data', (data: Buffer) => stream.write(`<${data.toString()}>`));
      stream.on('end', () => stream.end());
      stream.on('wantTrailers', () =>
        stream.sendTrailers({ 'grpc-status': '0', 'x-path': headers[':path'] }),
      );
    });
    await test.start([shopRoute()]);
    const stream = connectHttp2('shop.example.com').request(grpc);
    let text = '';
    const waitFor = (expected: string): Promise<void> =>
      new Promise((resolve) => {
        const check = (): void => {
          if (text === expected) resolve();
          else stream.once('data', () => setImmediate(check));
        };
        check();
      });
    stream.on('data', (data: Buffer) => (text += data.toString()));
    const trailers = once(stream, 'trailers');
    stream.write('one');
    await waitFor('<one>');
    stream.write('two');
    await waitFor('<one><two>');
    stream.end();
    expect((await trailers)[0]).toMatchObject({ 'grpc-status': '0', 'x-path': '/shop.Cart/Add' });
    if (!stream.closed) await once(stream, 'close');
    expect(test.connections).toBe(1);
  });

  it('keeps the headers of a gRPC error that has no body in one frame', async () => {
    await test.addHttp2('web', (stream) =>
      stream.respond({ ':status': 200, 'grpc-status': '12' }, { endStream: true }),
    );
    await test.start([shopRoute()]);
    const answer = await send(connectHttp2('shop.example.com'), grpc, 'x');
    expect(answer.headers['grpc-status']).toBe('12');
    expect(answer.flags & http2.constants.NGHTTP2_FLAG_END_STREAM).not.toBe(0);
  });

  it('cancels a gRPC call whose client cancels, and answers for endpoints without HTTP/2', async () => {
    const cancelled = new Promise<number>((resolve) => {
      void test.addHttp2('web', (stream) => {
        stream.on('error', () => undefined);
        stream.on('close', () => resolve(stream.rstCode));
        stream.respond({ ':status': 200 });
      });
    });
    while (!test.endpoints.has('web')) await new Promise(setImmediate);
    await test.addHttp('old', (_req, res) => res.end());
    const old = aRoute({ name: 'old', hosts: ['*.shop.example.com'], tls: shop });
    const service = { namespace: 'shop', name: 'old' };
    await test.start([
      shopRoute(),
      { ...old, rules: old.rules.map((rule) => ({ ...rule, service })) },
    ]);
    const session = connectHttp2('shop.example.com');
    const stream = session.request(grpc);
    stream.on('error', () => undefined);
    await once(stream, 'response');
    stream.close(http2.constants.NGHTTP2_CANCEL);
    expect(await cancelled).toBe(http2.constants.NGHTTP2_CANCEL);
    let isAnswered = false;
    const pending = send(session, { ...grpc, ':authority': 'a.shop.example.com' }, 'x').finally(
      () => (isAnswered = true),
    );
    // Node's server of HTTP/1.1 is silent.
    while (!isAnswered) {
      await test.clock.advance(1_000);
      await new Promise(setImmediate);
    }
    const answer = await pending;
    expect([answer.status, answer.body]).toEqual([
      502,
      expect.stringContaining('does not speak HTTP/2') as string,
    ]);
    expect(test.used).toBe(0);
  });

  it('answers 503 and 502 for gRPC without endpoints', async () => {
    await test.start([shopRoute()]);
    const session = connectHttp2('shop.example.com');
    expect((await send(session, grpc, 'x')).status).toBe(503);
    test.endpoints.set('web', [0, 0]);
    expect((await send(session, grpc, 'x')).status).toBe(502);
  });

  it('connects a WebSocket over TLS', async () => {
    const server = await test.addHttp('web', (_req, res) => res.end());
    server.on('upgrade', (_req, socket: net.Socket) => {
      socket.write(
        'HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n',
      );
      socket.pipe(socket);
    });
    await test.start([shopRoute()]);
    const request = https.request({
      ...{ host: '127.0.0.1', port: test.httpsPort, servername: 'shop.example.com' },
      ...{ ca: shop.pem, agent: false },
      headers: { host: 'shop.example.com', connection: 'Upgrade', upgrade: 'websocket' },
    });
    request.end();
    const [, socket] = (await once(request, 'upgrade')) as [unknown, net.Socket];
    socket.write('hello');
    const [data] = (await once(socket, 'data')) as [Buffer];
    expect(data.toString()).toBe('hello');
    const closed = once(socket, 'close');
    socket.end();
    await closed;
  });

  it('drains connections of HTTP/2: open requests finish', async () => {
    const { begun, finish } = await test.addHeld('web');
    await test.start([shopRoute()]);
    const session = connectHttp2('shop.example.com');
    const answer = send(session, { ':path': '/', ':authority': 'shop.example.com' });
    await begun;
    const drained = test.ingress.drain(3_600_000);
    finish();
    expect((await answer).body).toBe('late');
    await drained;
  });

  it('reads changed files again, keeps connections, and reports what does not fit', async () => {
    await test.addHttp('web', (_req, res) => res.end('ok'));
    const files = {
      certificateFile: join(directory, 'tls.crt'),
      keyFile: join(directory, 'tls.key'),
    };
    const both = ['shop.example.com', 'blog.example.com'];
    await test.start([aRoute({ hosts: both, tls: files })]);
    expect(test.ingress.status().problems).toEqual([
      `route "shop/web": cannot read the certificate ${files.certificateFile}: ENOENT`,
    ]);
    await expect(getTls('shop.example.com')).rejects.toThrow();

    const install = async (crt: TestCertificate, key: TestCertificate): Promise<void> => {
      const { readFile } = await import('node:fs/promises');
      await writeFile(`${files.keyFile}.new`, await readFile(key.keyFile));
      await rename(`${files.keyFile}.new`, files.keyFile);
      await writeFile(files.certificateFile, crt.pem);
      await test.clock.advance(5_000);
      await test.ingress.certificatesRead();
    };
    await install(shop, shop);
    expect(test.ingress.status().problems).toEqual([
      `route "shop/web": ${files.certificateFile} is not for "blog.example.com"`,
    ]);
    const agent = new https.Agent({ keepAlive: true });
    expect((await getTls('shop.example.com', undefined, { agent })).status).toBe(200);

    await install(blog, shop);
    expect(test.ingress.status().problems).toEqual([
      `route "shop/web": ${files.keyFile} does not belong to the first certificate in ${files.certificateFile}; the earlier certificate is served`,
    ]);
    expect((await getTls('shop.example.com')).status).toBe(200);

    await install(blog, blog);
    expect((await getTls('blog.example.com')).status).toBe(200);
    await expect(getTls('shop.example.com')).rejects.toThrow(/altnames|does not match/i);
    expect((await getTls('shop.example.com', undefined, { agent })).status).toBe(200);
    agent.destroy();
  });

  it('serves a pair from a secret, follows changes, and keeps the earlier pair', async () => {
    await test.addHttp('web', (_req, res) => res.end('ok'));
    const put = (certificate: TestCertificate, key: TestCertificate): void => {
      test.secrets.set('shop/tls', { certificate: certificate.pem, key: key.keyPem });
      test.ingress.certificatesChanged();
    };
    const both = ['shop.example.com', 'blog.example.com'];
    await test.start([aRoute({ hosts: both, tls: { secret: 'shop/tls' } })]);
    expect([test.ingress.status().problems, test.clock.pendingTimers]).toEqual([[], 0]);
    await expect(getTls('shop.example.com')).rejects.toThrow();

    put(shop, shop);
    expect(test.ingress.status().problems).toEqual([
      'route "shop/web": tls.crt of secret "shop/tls" is not for "blog.example.com"',
    ]);
    const agent = new https.Agent({ keepAlive: true });
    expect((await getTls('shop.example.com', undefined, { agent })).status).toBe(200);

    put(blog, shop);
    expect(test.ingress.status().problems).toEqual([
      'route "shop/web": tls.key of secret "shop/tls" does not belong to the first certificate in tls.crt; the earlier certificate is served',
    ]);
    expect((await getTls('shop.example.com')).status).toBe(200);

    put(blog, blog);
    test.secrets.clear();
    test.ingress.certificatesChanged();
    expect((await getTls('blog.example.com')).status).toBe(200);
    await expect(getTls('shop.example.com')).rejects.toThrow(/altnames|does not match/i);
    expect((await getTls('shop.example.com', undefined, { agent })).status).toBe(200);
    agent.destroy();
  });

  it('serves a secret for every host to clients without a name', async () => {
    await test.addHttp('web', (_req, res) => res.end('ok'));
    await test.start([aRoute({ tls: { secret: 'shop/tls' } })]);
    const anyName = { checkServerIdentity: () => undefined };
    await expect(getTls('', 'shop.example.com', anyName)).rejects.toThrow();
    test.secrets.set('shop/tls', { certificate: shop.pem, key: shop.keyPem });
    test.ingress.certificatesChanged();
    expect((await getTls('', 'shop.example.com', anyName)).status).toBe(200);
  });

  it('answers 421 between different secrets, not within one secret', async () => {
    await test.addHttp('web', (_req, res) => res.end('ok'));
    const pair = { certificate: shop.pem, key: shop.keyPem };
    test.secrets.set('shop/one', pair).set('shop/two', pair);
    const withSecret = (name: string, host: string, secret: string) =>
      aRoute({ name, hosts: [host], tls: { secret } });
    await test.start([
      withSecret('a', 'shop.example.com', 'shop/one'),
      withSecret('b', 'b.shop.example.com', 'shop/one'),
      withSecret('c', 'c.shop.example.com', 'shop/two'),
      aRoute({ name: 'd', hosts: ['d.shop.example.com'], tls: shop }),
    ]);
    const statusOf = async (host: string) => (await getTls('shop.example.com', host)).status;
    expect(await statusOf('b.shop.example.com')).toBe(200);
    expect(await statusOf('c.shop.example.com')).toBe(421);
    expect(await statusOf('d.shop.example.com')).toBe(421);
  });

  it('reports routes with different certificates for one name', async () => {
    await test.start([shopRoute(), { ...shopRoute(), name: 'web2', tls: blog }]);
    expect(test.ingress.status().problems[0]).toContain(
      'routes "shop/web" and "shop/web2" name different certificates for "shop.example.com"',
    );
  });
});
