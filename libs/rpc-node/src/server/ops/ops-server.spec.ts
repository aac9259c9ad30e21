import { ManualClock } from '@cloudless/base/testing';
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
