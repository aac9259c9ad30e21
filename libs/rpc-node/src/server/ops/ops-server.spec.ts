import { once } from 'node:events';
import type { IncomingMessage } from 'node:http';
import * as https from 'node:https';
import * as net from 'node:net';
import { CloudlessError } from '@cloudless/base';
import { ManualClock } from '@cloudless/base/testing';
import { TestCluster, TestServerTls } from '../../testing/test-cluster.js';
import { startOpsServer, type OpsServer, type OpsServerOptions } from '../index.js';
import { http1 } from '../testing/raw-http.js';

const servers: OpsServer[] = [];
afterEach(async () => {
  await Promise.all(servers.splice(0).map((server) => server.close()));
});

async function open(options: Partial<OpsServerOptions> = {}) {
  const clock = new ManualClock();
  const ok = () => ({ ok: true }) as const;
  const server = await startOpsServer({
    host: 'localhost',
    port: 0,
    clock,
    checkHealth: ok,
    checkReadiness: ok,
    renderMetrics: () => 'up 1\n',
    ...options,
  });
  servers.push(server);
  const get = (path: string, method = 'GET', headers: Record<string, string> = {}) =>
    http1(server.url, { path, method, headers });
  return { server, clock, get };
}

describe('startOpsServer', () => {
  it('serves /health, /ready and /metrics with 200 when all checks are ok or degraded', async () => {
    const { get } = await open();
    for (const path of ['/health', '/ready', '/health?verbose']) {
      const { status, headers, body } = await get(path);
      expect({ status, type: headers['content-type'], body: JSON.parse(body.toString()) }).toEqual({
        status: 200,
        type: 'application/json',
        body: { status: 'ok' },
      });
    }
    const degraded = await open({ checkHealth: () => ({ ok: true, degraded: ['disk full'] }) });
    const { status, body } = await degraded.get('/health');
    expect({ status, body: JSON.parse(body.toString()) }).toEqual({
      status: 200,
      body: { status: 'degraded', reasons: ['disk full'] },
    });
    const metrics = await get('/metrics');
    expect(metrics).toMatchObject({
      status: 200,
      headers: { 'content-type': 'text/plain; version=0.0.4; charset=utf-8' },
    });
    expect(metrics.body.toString()).toBe('up 1\n');
    expect((await get('/health', 'HEAD')).body).toHaveLength(0);
  });

  it('adds the facts of a report to the page, whatever the status', async () => {
    const facts = { role: 'leader', epoch: 7 };
    const reports = [
      { report: { ok: true, facts }, body: { status: 'ok' } },
      {
        report: { ok: true, degraded: ['disk full'], facts },
        body: { status: 'degraded', reasons: ['disk full'] },
      },
      {
        report: { ok: false, reasons: ['lost'], facts },
        body: { status: 'unavailable', reasons: ['lost'] },
      },
    ] as const;
    for (const { report, body } of reports) {
      const { get } = await open({ checkHealth: () => report });
      expect(JSON.parse((await get('/health')).body.toString())).toEqual({ ...body, ...facts });
    }
  });

  it('answers 503 with the reasons when a check is not ok', async () => {
    const { get } = await open({
      checkReadiness: () => ({ ok: false, reasons: ['no leader', 'store is read-only'] }),
    });
    const { status, body } = await get('/ready');
    expect({ status, body: JSON.parse(body.toString()) }).toEqual({
      status: 503,
      body: { status: 'unavailable', reasons: ['no leader', 'store is read-only'] },
    });
    expect(await get('/health')).toMatchObject({ status: 200 });
  });

  it('answers 503 when a check throws or takes 5 s', async () => {
    let called: () => void = () => undefined;
    const readinessCalled = new Promise<void>((resolve) => (called = resolve));
    const { get, clock } = await open({
      checkHealth: () => Promise.reject(new Error('store is gone')),
      checkReadiness: () => {
        called();
        return new Promise<never>(() => undefined);
      },
    });
    expect((await get('/health')).body.toString()).toContain('store is gone');
    const hanging = get('/ready');
    await readinessCalled;
    await clock.advance(5_000);
    expect(await hanging).toMatchObject({ status: 503 });
  });

  it.each([
    { path: '/nope', method: 'GET', headers: {}, status: 404 },
    { path: '/constructor', method: 'GET', headers: {}, status: 404 },
    { path: '/health', method: 'POST', headers: {}, status: 405 },
    {
      path: '/health',
      method: 'OPTIONS',
      headers: { origin: 'http://localhost', 'access-control-request-method': 'GET' },
      status: 405,
    },
    { path: '/metrics', method: 'GET', headers: { host: 'evil.example' }, status: 403 },
    { path: '/metrics', method: 'GET', headers: { origin: 'http://evil.example' }, status: 403 },
  ])('answers $method $path with $status', async ({ path, method, headers, status }) => {
    const { get } = await open();
    expect(await get(path, method, headers)).toMatchObject({ status });
  });

  it.each([
    { path: '/', status: 200 },
    { path: '/nope', status: 404 },
  ])('answers $status at $path with the list of its pages', async ({ path, status }) => {
    const { get, server } = await open();
    const page = await get(path);
    expect(page.status).toBe(status);
    expect(page.body.toString()).toContain(`curl ${server.url}/health`);
  });

  it('rejects an address that is not loopback, and a port in use with an error that names --ops-port', async () => {
    await expect(open({ host: '0.0.0.0' })).rejects.toMatchObject({ kind: 'precondition' });
    const { server } = await open();
    await expect(open({ port: server.address.port })).rejects.toThrow(
      'choose another port with --ops-port',
    );
  });
});

describe('startOpsServer with TLS', () => {
  const get = async (url: string, path: string, headers: Record<string, string> = {}) => {
    const request = https.get(url + path, { rejectUnauthorized: false, headers, agent: false });
    const [response] = (await once(request, 'response')) as [IncomingMessage];
    let body = '';
    for await (const chunk of response) body += String(chunk);
    return { status: response.statusCode, body };
  };

  it('serves its pages to any host name, also when another address than loopback is bound', async () => {
    const credential = await (await TestCluster.create()).issueServer();
    const { server } = await open({ tls: new TestServerTls(credential), host: '0.0.0.0' });
    const url = `https://127.0.0.1:${server.address.port}`;
    expect(server.url).toMatch(/^https:/);
    for (const path of ['/health', '/ready', '/metrics'])
      expect(await get(url, path, { host: 'ops.example' })).toMatchObject({ status: 200 });
    expect((await get(url, '/')).body).toContain(`curl --cacert ca.crt ${url}/health`);
    expect(await get(url, '/metrics', { origin: 'http://localhost' })).toMatchObject({
      status: 403,
    });
  });

  it('answers plaintext with a text that names https', async () => {
    const credential = await (await TestCluster.create()).issueServer();
    const { server } = await open({ tls: new TestServerTls(credential) });
    const socket = net.connect(server.address.port, '127.0.0.1');
    socket.write('GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n');
    const [answer] = (await once(socket, 'data')) as [Buffer];
    expect(answer.toString()).toContain('use https:// instead of http://');
    socket.destroy();
  });
});

describe('OpsServerOptions.authorize', () => {
  it('decides about /metrics only', async () => {
    const { get } = await open({
      authorize: ({ header }) => {
        if (header.get('authorization') === 'Bearer x') return;
        throw new CloudlessError('unauthenticated', 'send a token');
      },
    });
    for (const path of ['/health', '/ready', '/'])
      expect(await get(path)).toMatchObject({ status: 200 });
    const refused = await get('/metrics');
    expect(refused.status).toBe(401);
    expect(JSON.parse(refused.body.toString())).toEqual({
      status: 'refused',
      reasons: ['send a token'],
    });
    expect(await get('/metrics', 'GET', { authorization: 'Bearer x' })).toMatchObject({
      status: 200,
    });
  });
});
