import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { createClient, createRouterTransport } from '@connectrpc/connect';
import { CoordinatorService } from '@cloudless/api';
import { createSeededRandom, silentLog, type Clock, type Log } from '@cloudless/base';
import type { Tracing } from './trace-model.js';
import { noTracing, startTracing } from './tracing.js';

/** The system clock, because the exporter always uses the system clock. */
const clock: Clock = {
  now: () => performance.now(),
  wallTime: () => Date.now(),
  setTimer: (delayMs, action) => {
    const timer = setTimeout(action, delayMs);
    return { cancel: () => clearTimeout(timer) };
  },
};

/**
 * OTLP receiver that records the received bytes. Names and ids of spans can be found in the bytes
 * without the schema.
 */
class Receiver {
  readonly requests: { readonly path: string; readonly body: Buffer }[] = [];
  private readonly server: Server;

  constructor(status = 200) {
    this.server = createServer((request, response) => {
      const chunks: Buffer[] = [];
      request.on('data', (chunk: Buffer) => chunks.push(chunk));
      request.on('end', () => {
        this.requests.push({ path: request.url ?? '', body: Buffer.concat(chunks) });
        response.writeHead(status, { 'Content-Type': 'application/x-protobuf' }).end();
      });
    });
  }

  async listen(): Promise<string> {
    await new Promise<void>((resolve) => this.server.listen(0, '127.0.0.1', resolve));
    return `http://127.0.0.1:${(this.server.address() as AddressInfo).port}`;
  }

  async close(): Promise<void> {
    if (!this.server.listening) return;
    this.server.closeAllConnections();
    await new Promise((resolve) => this.server.close(resolve));
  }

  has(bytes: Buffer | string): boolean {
    return this.requests.some(({ body }) => body.includes(bytes));
  }
}

const TRACE = '4bf92f3577b34da6a3ce929d0e0e4736';
const options = { service: 'cloudless-test', version: '0.1.0', instance: 'one', clock };

function createTracedClient(tracing: Tracing, onScale: () => Promise<void>) {
  const transport = createRouterTransport(
    (router) => {
      router.service(CoordinatorService, {
        scaleWorkload: async () => {
          await onScale();
          return {};
        },
      });
    },
    { router: { interceptors: [tracing.serverInterceptor] } },
  );
  return createClient(CoordinatorService, transport);
}

const traceparent = { headers: { traceparent: `00-${TRACE}-00f067aa0ba902b7-01` } };

/** Receivers and tracings that are closed after each test, also when the test failed. */
const opened: { close(): Promise<void> }[] = [];
afterEach(async () => {
  for (const part of opened.splice(0).reverse()) await part.close();
});

async function aReceiver(
  status?: number,
): Promise<{ readonly receiver: Receiver; readonly endpoint: string }> {
  const receiver = new Receiver(status);
  const endpoint = await receiver.listen();
  opened.push(receiver);
  return { receiver, endpoint };
}

async function startTracingTo(endpoint: string, log = silentLog): Promise<Tracing> {
  const tracing = await startTracing({ ...options, endpoint, log });
  opened.push(tracing);
  return tracing;
}

describe('startTracing', () => {
  it('returns noTracing without an endpoint', async () => {
    expect(await startTracing({ ...options, endpoint: undefined, log: silentLog })).toBe(noTracing);
    await expect(noTracing.tracer.run('x', {}, async () => 5)).resolves.toBe(5);
    expect(noTracing.getLogFields()).toEqual({});
  });

  it('continues the trace of the caller in the call and in later work on a marked object, and exports it', async () => {
    const { receiver, endpoint } = await aReceiver();
    const tracing = await startTracingTo(endpoint);
    let fieldsInCall: unknown;
    await createTracedClient(tracing, async () => {
      fieldsInCall = tracing.getLogFields();
      tracing.tracer.mark('w1');
      await tracing.tracer.run('commit', {}, async () => undefined);
    }).scaleWorkload({ name: 'web' }, traceparent);
    expect(fieldsInCall).toEqual({ traceId: TRACE });
    expect(tracing.getLogFields()).toEqual({});
    await tracing.tracer.follow('w1', 'reconcile workload', {}, async () => {
      expect(tracing.getLogFields()).toEqual({ traceId: TRACE });
      await tracing.tracer.run('commit', {}, async () => undefined);
    });
    await tracing.tracer.follow('other', 'not shown', {}, () =>
      tracing.tracer.run('not shown', {}, async () => undefined),
    );
    tracing.tracer.begin('w1', 'order start', {})?.end();
    await tracing.close();
    expect(receiver.requests.map(({ path }) => path)).toEqual(['/v1/traces']);
    for (const text of [
      'ScaleWorkload',
      'commit',
      'reconcile workload',
      'order start',
      'cloudless-test',
    ])
      expect(receiver.has(text)).toBe(true);
    expect(receiver.has(Buffer.from(TRACE, 'hex'))).toBe(true);
    expect(receiver.has('not shown')).toBe(false);
  });

  describe('createSampledTracer', () => {
    const parent = (flags: string): string => `00-${TRACE}-00f067aa0ba902b7-${flags}`;

    it.each([
      { name: 'a share of those without a parent', share: 0.5, parent: undefined, traced: [0, 2] },
      { name: 'nothing with the share 0', share: 0, parent: undefined, traced: [] },
      { name: 'a parent that is traced', share: 0, parent: parent('01'), traced: [0, 1, 2, 3] },
      { name: 'no parent that is not traced', share: 1, parent: parent('00'), traced: [] },
      { name: 'a malformed parent as none', share: 0.5, parent: '00-x-y-01', traced: [0, 2] },
    ])('traces $name', async ({ share, parent, traced }) => {
      const tracing = await startTracingTo((await aReceiver()).endpoint);
      const numbers = [0, 0.9, 0.4, 0.5];
      const random = { next: () => numbers.shift() ?? 0, bytes: () => new Uint8Array() };
      const tracer = tracing.createSampledTracer(share, random);
      const begun = [0, 1, 2, 3].map(() => tracer.begin('connect', 'client', parent));
      expect([...begun.keys()].filter((index) => begun[index] !== undefined)).toEqual(traced);
    });

    it('continues the trace of the parent, and exports names, attributes and failures', async () => {
      const { receiver, endpoint } = await aReceiver();
      const tracing = await startTracingTo(endpoint);
      const tracer = tracing.createSampledTracer(0, createSeededRandom(1));
      const span = tracer.begin('connect default/web', 'client', parent('01'));
      expect(span?.traceparent).toMatch(new RegExp(`^00-${TRACE}-[0-9a-f]{16}-01$`));
      expect(span?.traceparent).not.toContain('00f067aa0ba902b7');
      span?.end({ 'cloudless.path': 'link' }, 'noEndpoints');
      span?.end({ 'cloudless.path': 'ended twice' });
      await tracing.close();
      for (const text of ['connect default/web', 'cloudless.path', 'link', 'noEndpoints'])
        expect(receiver.has(text)).toBe(true);
      expect(receiver.has(Buffer.from(TRACE, 'hex'))).toBe(true);
      expect(receiver.has('ended twice')).toBe(false);
    });

    it('begins at most 100 spans in each second', async () => {
      let nowMs = 0;
      const { endpoint } = await aReceiver();
      const at = { ...clock, now: () => nowMs };
      const tracing = await startTracing({ ...options, endpoint, clock: at, log: silentLog });
      opened.push(tracing);
      const tracer = tracing.createSampledTracer(1, createSeededRandom(1));
      const begin = (): number =>
        Array.from({ length: 150 }, () => tracer.begin('connect', 'client')).filter(Boolean).length;
      expect(begin()).toBe(100);
      nowMs = 999;
      expect(begin()).toBe(0);
      nowMs = 1_000;
      expect(begin()).toBe(100);
    });
  });

  it('sends the current trace to the server of a nested call', async () => {
    const tracing = await startTracingTo((await aReceiver()).endpoint);
    let received: string | null = null;
    const inner = createRouterTransport(
      (router) =>
        router.service(CoordinatorService, {
          getServerInfo: (_request, { requestHeader }) => (
            (received = requestHeader.get('traceparent')),
            {}
          ),
        }),
      { transport: { interceptors: [tracing.clientInterceptor] } },
    );
    await createTracedClient(
      tracing,
      async () => void (await createClient(CoordinatorService, inner).getServerInfo({})),
    ).scaleWorkload({ name: 'web' }, traceparent);
    expect(received).toMatch(new RegExp(`^00-${TRACE}-[0-9a-f]{16}-01$`));
  });

  it.each([
    { name: 'refuses spans, and logs one warning', status: 400 },
    { name: 'does not exist', status: undefined },
  ])(
    'delays no call when the receiver $name',
    async ({ status }) => {
      const { receiver, endpoint } = await aReceiver(status);
      if (status === undefined) await receiver.close();
      const warnings: string[] = [];
      const log: Log = { ...silentLog, warn: (message) => void warnings.push(message) };
      const tracing = await startTracingTo(endpoint, log);
      const client = createTracedClient(tracing, async () => undefined);
      // More calls than the queue can hold spans.
      for (let call = 0; call < 2_100; call += 1) await client.scaleWorkload({ name: 'web' });
      await tracing.close();
      if (status !== undefined) expect(warnings).toEqual(['traces not sent']);
    },
    60_000,
  );
});
