import { Code, ConnectError, createClient, createRouterTransport } from '@connectrpc/connect';
import { CoordinatorService } from '@cloudless/api';
import type { LogFields } from '@cloudless/base';
import { ManualClock, RecordingMeter } from '@cloudless/base/testing';
import { createRpcObserver, type RpcObserverOptions } from './rpc-observer.js';

interface Line {
  readonly level: string;
  readonly message: string;
  readonly fields: LogFields;
}

function aServer(options: Partial<RpcObserverOptions> = {}) {
  const clock = new ManualClock();
  const meter = new RecordingMeter();
  const lines: Line[] = [];
  const recordLine =
    (level: string) =>
    (message: string, fields: LogFields = {}) =>
      void lines.push({ level, message, fields });
  const log = {
    error: recordLine('error'),
    warn: recordLine('warn'),
    info: recordLine('info'),
    debug: recordLine('debug'),
    child: () => log,
  };
  let endStream: () => void = () => undefined;
  const streamEnded = new Promise<void>((resolve) => (endStream = resolve));
  const observer = createRpcObserver({
    clock,
    log,
    meter,
    getClientAddress: () => '127.0.0.1',
    ...options,
  });
  const transport = createRouterTransport(
    (router) =>
      router.service(CoordinatorService, {
        scaleWorkload: async () => {
          await clock.advance(250);
          return {};
        },
        getWorkload: () => {
          throw new ConnectError('workload "web" not found', Code.NotFound);
        },
        async *watchWorkloads() {
          yield {};
          await streamEnded;
        },
      }),
    { router: { interceptors: [observer] } },
  );
  return { client: createClient(CoordinatorService, transport), clock, meter, lines, endStream };
}

describe('createRpcObserver', () => {
  it('counts, times and logs a call with caller, request id and trace id', async () => {
    const { client, meter, lines } = aServer();
    const traceId = '4bf92f3577b34da6a3ce929d0e0e4736';
    await client.scaleWorkload(
      { name: 'web', requestId: 'r1' },
      { headers: { traceparent: `00-${traceId}-00f067aa0ba902b7-01` } },
    );
    expect(
      await meter.read('cloudless_rpc_calls_total', { method: 'ScaleWorkload', code: 'ok' }),
    ).toBe(1);
    expect(await meter.read('cloudless_rpc_duration_seconds', { method: 'ScaleWorkload' })).toBe(1);
    const fields = {
      rpc: 'cloudless.api.CoordinatorService/ScaleWorkload',
      code: 'ok',
      durationMs: 250,
    };
    expect(lines).toEqual([
      {
        level: 'debug',
        message: 'call ended',
        fields: {
          ...fields,
          principal: 'anonymous@loopback',
          address: '127.0.0.1',
          requestId: 'r1',
          traceId,
        },
      },
    ]);
  });

  it('logs the principal of the call', async () => {
    const { client, lines } = aServer({ getPrincipal: () => 'user/ada' });
    await client.scaleWorkload({ name: 'web' });
    expect(lines[0]?.fields).toMatchObject({ principal: 'user/ada' });
  });

  it('logs five warnings about failed calls of one method, then one each 10 s with the number in between', async () => {
    const { client, meter, lines, clock } = aServer();
    const fail = () => client.getWorkload({ name: 'web' }).catch(() => undefined);
    for (let turn = 0; turn < 20; turn += 1) await fail();
    const warnings = () => lines.filter(({ level }) => level === 'warn');
    expect(warnings()).toHaveLength(5);
    expect(warnings()[0]).toMatchObject({
      message: 'call failed',
      fields: { code: 'not_found', reason: 'workload "web" not found' },
    });
    await clock.advance(10_000);
    await fail();
    expect(warnings().at(-1)?.fields).toMatchObject({ repeated: 15 });
    expect(lines).toHaveLength(21);
    expect(await meter.read('cloudless_rpc_calls_total', { code: 'not_found' })).toBe(21);
  });

  it('counts a stream as open until the stream ends, and then as a call', async () => {
    const { client, meter, endStream } = aServer();
    const items = client.watchWorkloads({})[Symbol.asyncIterator]();
    await items.next();
    const labels = { method: 'WatchWorkloads' };
    expect(await meter.read('cloudless_rpc_open_calls', labels)).toBe(1);
    expect(await meter.read('cloudless_rpc_calls_total', labels)).toBe(0);
    endStream();
    await items.next();
    expect(await meter.read('cloudless_rpc_open_calls', labels)).toBe(0);
    expect(await meter.read('cloudless_rpc_calls_total', { ...labels, code: 'ok' })).toBe(1);
  });
});
