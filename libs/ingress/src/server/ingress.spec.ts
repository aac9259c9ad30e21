import http from 'node:http';
import net from 'node:net';
import { once } from 'node:events';
import { RecordingTracer } from '@cloudless/base/testing';
import { aRoute, aRule } from '../testing/builders.js';
import { readAnswer, readText, TestIngress } from '../testing/test-ingress.js';

const web = { namespace: 'shop', name: 'web' };

describe('HTTP ingress over HTTP/1.1', () => {
  let test: TestIngress;
  beforeEach(() => {
    test = new TestIngress();
  });
  afterEach(() => test.close());

  const useTracer = (tracer: RecordingTracer): void => {
    test.close();
    test = new TestIngress({ tracer });
  };

  const echo: http.RequestListener = (req, res) => {
    let body = '';
    req.on('data', (chunk: Buffer) => (body += chunk.toString()));
    req.on('end', () => {
      res.setHeader('content-type', 'application/json');
      const { method, url, headers, trailers } = req;
      res.end(JSON.stringify({ method, url, headers, body, trailers }));
    });
  };

  it('forwards a request and its body to an endpoint of the route', async () => {
    await test.addHttp('web', echo);
    await test.start([aRoute({ hosts: ['shop.example.com'] })]);
    const answer = await test.get('Shop.example.com:8080', '/a?b=%2f', {
      method: 'POST',
      body: 'hello',
      headers: { 'x-forwarded-for': '1.1.1.1', 'content-length': 5 },
    });
    expect(answer.status).toBe(200);
    const seen = JSON.parse(answer.body) as { headers: Record<string, string> };
    expect(seen).toMatchObject({ method: 'POST', url: '/a?b=%2f', body: 'hello' });
    expect(seen.headers).toMatchObject({
      host: 'Shop.example.com:8080',
      'x-forwarded-for': '127.0.0.1',
      'x-forwarded-proto': 'http',
      'x-request-id': answer.headers['x-request-id'],
      'content-length': '5',
    });
    expect(test.clients[0]).toMatchObject({
      address: '127.0.0.1',
      local: `127.0.0.1:${test.httpPort}`,
    });
  });

  it.each([
    { name: 'a client without a trace', given: {}, parent: undefined },
    { name: 'a client with a trace', given: { traceparent: '00-a-b-01' }, parent: '00-a-b-01' },
  ])('traces a request of $name up to the endpoint', async ({ given, parent }) => {
    const tracer = new RecordingTracer();
    useTracer(tracer);
    await test.addHttp('web', echo);
    await test.start([aRoute()]);
    const { body, headers } = await test.get('a.example.com', '/shop?key=1', { headers: given });
    const seen = JSON.parse(body) as { headers: Record<string, string> };
    expect(seen.headers.traceparent).toBe('span-1');
    expect(test.traces).toEqual(['span-1']);
    expect(tracer.spans).toMatchObject([
      {
        ...{ name: 'GET /', kind: 'server', parent },
        attributes: {
          'http.request.method': 'GET',
          'http.response.status_code': 200,
          'url.path': '/shop',
          'server.address': 'a.example.com',
          'cloudless.request_id': headers['x-request-id'],
          'cloudless.endpoint': 'web-0',
        },
      },
    ]);
  });

  it('traces a request that no endpoint answers as failed', async () => {
    const tracer = new RecordingTracer();
    useTracer(tracer);
    await test.start([aRoute()]);
    await test.get('a.example.com', '/', { method: 'POST' });
    expect(tracer.spans).toMatchObject([
      { name: 'POST /', failure: 'status 503', attributes: { 'cloudless.endpoint': '' } },
    ]);
  });

  it('passes on the trace of a client when the request is not traced', async () => {
    await test.addHttp('web', echo);
    await test.start([aRoute()]);
    const headers = { traceparent: '00-a-b-00' };
    const { body } = await test.get('a.example.com', '/', { headers });
    const seen = JSON.parse(body) as { headers: Record<string, string> };
    expect(seen.headers.traceparent).toBe('00-a-b-00');
  });

  it('keeps the size of a body unknown when the client does not announce it, also for GET', async () => {
    await test.addHttp('web', echo);
    await test.start([aRoute()]);
    const answer = await test.sendRaw(
      'GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n' +
        '23\r\nGET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n\r\n0\r\n\r\n',
    );
    expect(answer).toContain('"transfer-encoding":"chunked"');
    expect(answer).toContain('GET /smuggled');
    expect(answer.match(/HTTP\/1\.1 200/g)).toHaveLength(1);
  });

  it('passes on trailers of requests and responses', async () => {
    await test.addHttp('web', (req, res) => {
      req.resume().on('end', () => {
        res.writeHead(200, { trailer: 'x-sum' });
        res.write('body');
        res.addTrailers({ 'x-sum': req.trailers['x-check'] ?? 'none' });
        res.end();
      });
    });
    await test.start([aRoute()]);
    const request = http.request({
      ...{ port: test.httpPort, host: '127.0.0.1', method: 'POST', agent: false },
      headers: { host: 'a', trailer: 'x-check', 'transfer-encoding': 'chunked' },
    });
    request.write('x');
    request.addTrailers({ 'x-check': '42' });
    request.end();
    const [response] = (await once(request, 'response')) as [http.IncomingMessage];
    expect((await readAnswer(response)).trailers).toEqual({ 'x-sum': '42' });
  });

  it('uses a connection to an endpoint again, and closes it when unused for too long', async () => {
    const server = await test.addHttp('web', echo);
    await test.start([aRoute()]);
    await test.get('a');
    await test.get('a');
    expect(test.connections).toBe(1);
    const closed = new Promise<void>((resolve) =>
      server.getConnections((_, count) => {
        expect(count).toBe(1);
        resolve();
      }),
    );
    await closed;
    await test.clock.advance(6_000);
    await test.get('a');
    expect(test.connections).toBe(2);
    expect(test.used).toBe(0);
  });

  it('answers 404, naming neither routes nor endpoints, when no route fits', async () => {
    await test.start([aRoute({ hosts: ['shop.example.com'] })]);
    const answer = await test.get('other.example.com', '/x');
    expect(answer.status).toBe(404);
    expect(answer.body).toMatch(
      /^404 Not Found: no route for other.example.com\/x \(request \w+\)\n$/,
    );
  });

  it('answers 503 for a service without endpoints', async () => {
    await test.start([aRoute()]);
    const { status, body } = await test.get('a');
    expect(status).toBe(503);
    expect(body).toContain('route "shop/web": service "web" has no ready endpoint');
  });

  it('tries another endpoint when one accepts no connection, also for a request with a body', async () => {
    test.endpoints.set('web', [0]);
    await test.addHttp('web', echo);
    await test.start([aRoute()]);
    const { status, body } = await test.get('a', '/', { method: 'POST', body: 'hello' });
    expect(status).toBe(200);
    expect(JSON.parse(body)).toMatchObject({ body: 'hello' });
    expect(test.lines[0]).toMatchObject({ attempts: 2, endpoint: 'web-1', status: 200 });
    expect(test.responses).toMatchObject([{ endpoint: 'web-1', status: 200 }]);
  });

  it('answers 502 when the retries are used up', async () => {
    test.endpoints.set('web', [0, 0, 0]);
    await test.addHttp('web', echo);
    await test.start([aRoute({ rules: [aRule({ retries: 2 })] })]);
    const { status, body } = await test.get('a');
    expect(status).toBe(502);
    expect(body).toContain('no endpoint accepted the connection');
    expect(body).not.toContain('127.0.0.1');
    expect(test.lines[0]).toMatchObject({ attempts: 3 });
    expect(test.responses).toMatchObject([{ endpoint: 'web-2', status: 502 }]);
    expect(test.used).toBe(0);
  });

  it('repeats a GET, but no POST, whose kept connection the endpoint has closed', async () => {
    const hits: string[] = [];
    const server = net.createServer((socket) => {
      socket.on('error', () => undefined);
      socket.on('data', (data) => {
        hits.push(data.toString().split(' ')[0] ?? '');
        // The second request of a connection is lost with the connection.
        if (hits.length === 2 || hits.length === 5) socket.destroy();
        else socket.write('HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok');
      });
    });
    server.listen(0, '127.0.0.1');
    await once(server, 'listening');
    test.endpoints.set('web', [(server.address() as net.AddressInfo).port]);
    await test.start([aRoute()]);
    expect((await test.get('a')).status).toBe(200);
    expect((await test.get('a')).status).toBe(200);
    expect(hits).toEqual(['GET', 'GET', 'GET']);
    expect((await test.get('a')).status).toBe(200);
    const post = await test.get('a', '/', { method: 'POST', body: 'x' });
    expect(post.status).toBe(502);
    expect(hits.filter((method) => method === 'POST')).toHaveLength(1);
    server.close();
  });

  it('answers 504 when the response does not begin in time, and ends the request', async () => {
    const ended: Promise<unknown>[] = [];
    const reached = new Promise<void>((resolve) => {
      void test.addHttp('web', (req) => {
        ended.push(once(req.socket, 'close'));
        resolve();
      });
    });
    while (!test.endpoints.has('web')) await new Promise(setImmediate);
    await test.start([aRoute({ rules: [aRule({ timeoutMs: 2_000 })] })]);
    const answer = test.get('a');
    await reached;
    await test.clock.advance(2_000);
    expect(await answer).toMatchObject({
      status: 504,
      body: expect.stringContaining('no response within 2000 ms') as string,
    });
    await Promise.all(ended);
    expect(test.used).toBe(0);
  });

  it('bounds headers and bodies as the route says', async () => {
    await test.addHttp('web', echo);
    await test.start([aRoute({ maxHeaderBytes: 1_000, maxBodyBytes: 10 })]);
    const large = await test.get('a', '/', { headers: { 'x-large': 'x'.repeat(1_000) } });
    expect(large.status).toBe(431);
    const huge = await test.get('a', '/', { headers: { 'x-large': 'x'.repeat(80_000) } });
    expect(huge.status).toBe(431);
    const announced = await test.get('a', '/', { method: 'POST', body: 'x'.repeat(11) });
    expect(announced.status).toBe(413);
    expect(announced.body).toContain('the body is larger than 10 bytes');
    const fits = await test.get('a', '/', { method: 'POST', body: 'x'.repeat(10) });
    expect(fits.status).toBe(200);
    const headers = { 'transfer-encoding': 'chunked' };
    const chunked = await test.get('a', '/', { method: 'POST', body: 'x'.repeat(11), headers });
    expect(chunked.status).toBe(413);
    expect(test.used).toBe(0);
  });

  it.each([
    ['two Host headers', 'GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\nConnection: close\r\n\r\n', 400],
    ['no Host header', 'GET / HTTP/1.1\r\nConnection: close\r\n\r\n', 400],
    [
      'both Content-Length and Transfer-Encoding',
      'POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n',
      400,
    ],
    [
      'two Content-Lengths',
      'POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nxx',
      400,
    ],
    ['a bare line feed in headers', 'GET / HTTP/1.1\r\nHost: a\r\nX: y\nZ: 1\r\n\r\n', 400],
    ['a path upwards', 'GET /a/../b HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n', 400],
    [
      'a coding that is not chunked',
      'POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n',
      400,
    ],
  ])('refuses %s', async (_name, text, status) => {
    await test.addHttp('web', echo);
    await test.start([aRoute()]);
    expect(await test.sendRaw(text)).toMatch(new RegExp(`^HTTP/1.1 ${status} `));
    expect(test.connections).toBe(0);
  });

  it('carries a large body both ways while both sides read slowly', async () => {
    await test.addHttp('web', (req, res) => void req.pipe(res));
    await test.start([aRoute()]);
    const size = 4 * 1024 * 1024;
    const request = http.request({
      ...{ port: test.httpPort, host: '127.0.0.1', method: 'POST', agent: false },
      headers: { host: 'a', 'content-length': size },
    });
    let sent = 0;
    const write = (): void => {
      while (sent < size) {
        sent += 65_536;
        if (!request.write(Buffer.alloc(65_536, 'x'))) return;
      }
      request.end();
    };
    request.on('drain', write);
    write();
    const [response] = (await once(request, 'response')) as [http.IncomingMessage];
    let received = 0;
    for await (const chunk of response) received += (chunk as Buffer).length;
    expect(received).toBe(size);
  });

  it('shows the loss of an endpoint within a response as a lost connection', async () => {
    await test.addHttp('web', (_req, res) => {
      res.writeHead(200, { 'content-length': 100 });
      res.write('half');
      setImmediate(() => res.destroy());
    });
    await test.start([aRoute()]);
    const request = http.get({ port: test.httpPort, host: '127.0.0.1', agent: false });
    const [response] = (await once(request, 'response')) as [http.IncomingMessage];
    await readText(response);
    expect(response.complete).toBe(false);
  });

  it('ends the request to the endpoint when the client goes', async () => {
    const aborted = new Promise<void>((resolve) => {
      void test
        .addHttp('web', (req, res) => {
          res.write('begun');
          req.socket.once('close', () => resolve());
        })
        .then(() => test.start([aRoute()]))
        .then(async () => {
          const request = http.get({ port: test.httpPort, host: '127.0.0.1', agent: false });
          request.on('error', () => undefined);
          const [response] = (await once(request, 'response')) as [http.IncomingMessage];
          response.on('error', () => undefined);
          await once(response, 'data');
          request.destroy();
        });
    });
    await aborted;
    expect(test.used).toBe(0);
    expect(test.lines[0]).toMatchObject({ status: 499, route: 'shop/web' });
    expect(test.responses).toEqual([]);
  });

  it('connects a WebSocket, with bytes that either side sends at once', async () => {
    const server = await test.addHttp('web', echo);
    server.on('upgrade', (req: http.IncomingMessage, socket: net.Socket) => {
      socket.write(
        `HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: ${req.headers['sec-websocket-key']}\r\n\r\nfirst`,
      );
      socket.on('data', (data) => socket.write(`echo ${data.toString()}`));
      socket.on('end', () => socket.end());
    });
    await test.start([aRoute()]);
    const socket = net.connect(test.httpPort, '127.0.0.1');
    socket.write(
      'GET /chat HTTP/1.1\r\nHost: a\r\nConnection: keep-alive, Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: key\r\n\r\nhello',
    );
    let text = '';
    const hasAll = new Promise<void>((resolve) =>
      socket.on('data', (data) => {
        text += data.toString();
        if (text.includes('echo hello')) resolve();
      }),
    );
    await hasAll;
    expect(text).toMatch(/^HTTP\/1.1 101 /);
    expect(text).toContain('sec-websocket-accept: key\r\n');
    expect(text).toMatch(/\r\n\r\nfirst/);
    const closed = once(socket, 'close');
    socket.end();
    await closed;
  });

  it('passes on the refusal of a WebSocket', async () => {
    const server = await test.addHttp('web', echo);
    server.on('upgrade', (_req, socket: net.Socket) =>
      socket.end('HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\nConnection: close\r\n\r\nno'),
    );
    await test.start([aRoute()]);
    const headers = { connection: 'Upgrade', upgrade: 'websocket' };
    expect(await test.get('a', '/', { headers })).toMatchObject({ status: 403, body: 'no' });
    const missing = await test.get('a', '/../', { headers });
    expect(missing.status).toBe(400);
  });

  it('answers a request to switch to h2c over HTTP/1.1, with its body', async () => {
    await test.addHttp('web', echo);
    await test.start([aRoute()]);
    const headers = {
      connection: 'Upgrade, HTTP2-Settings',
      upgrade: 'h2c',
      'http2-settings': 'x',
    };
    const { status, body } = await test.get('a', '/x', { method: 'POST', body: 'hello', headers });
    expect(status).toBe(200);
    expect(JSON.parse(body)).toMatchObject({ url: '/x', body: 'hello' });
  });

  it('refuses gRPC over HTTP/1.1', async () => {
    await test.start([aRoute()]);
    const headers = { 'content-type': 'application/grpc' };
    const { status, body } = await test.get('a', '/', { method: 'POST', headers, body: 'x' });
    expect([status, body]).toEqual([400, expect.stringContaining('gRPC needs HTTP/2')]);
  });

  it('finishes open requests of a route that has changed', async () => {
    const { begun, finish } = await test.addHeld('web');
    await test.start([aRoute()]);
    const answer = test.get('a');
    await begun;
    await test.ingress.setRoutes([]);
    expect((await test.get('a')).status).toBe(404);
    finish();
    expect(await answer).toMatchObject({ status: 200, body: 'late' });
  });

  it('drains: requests finish, unused and further connections end', async () => {
    const { begun, finish } = await test.addHeld('web');
    await test.start([aRoute()]);
    const agent = new http.Agent({ keepAlive: true });
    const answer = test.get('a', '/', { agent });
    await begun;
    const idle = net.connect(test.httpPort, '127.0.0.1');
    await once(idle, 'connect');
    const drained = test.ingress.drain(3_600_000);
    finish();
    expect(await answer).toMatchObject({ status: 200, body: 'late' });
    idle.destroy();
    await drained;
    await expect(test.get('a')).rejects.toThrow('ECONNREFUSED');
    agent.destroy();
  });

  it('counts requests by route and class of status', async () => {
    await test.addHttp('web', echo);
    await test.start([
      aRoute(),
      aRoute({
        name: 'none',
        hosts: ['none'],
        rules: [aRule({ service: { ...web, name: 'none' } })],
      }),
    ]);
    await test.get('a');
    await test.get('a', '/%');
    await test.get('none');
    await test.get('a');
    expect(test.lines.map(({ route, status }) => [route, status])).toEqual([
      ['shop/web', 200],
      ['', 400],
      ['shop/none', 503],
      ['shop/web', 200],
    ]);
    expect(test.lines[0]?.requestId).toMatch(/^[0-9a-f]{32}$/);
  });

  it('ends a connection whose headers do not arrive', async () => {
    test = new TestIngress({ headersTimeoutMs: 100 });
    await test.start([aRoute()]);
    const socket = net.connect(test.httpPort, '127.0.0.1');
    socket.write('GET / HTTP/1.1\r\nHost: a\r\n');
    expect(await readText(socket)).toMatch(/^HTTP\/1.1 408 /);
  });
});
