import { CloudlessError, toContainerId } from '@cloudless/base';
import type { ExecEvent, ExecRequest } from '@cloudless/runtime';
import { checkContainer, type CheckDeps } from './check-container.js';
import type { ProbeCheck } from './probe-schedule.js';
import type { CheckResult } from './probe-state.js';

const container = {
  id: toContainerId('a'.repeat(64)),
  endpoints: [
    { portName: 'other', ip: '127.0.0.1', port: 1 },
    { portName: 'http', ip: '127.0.0.2', port: 4_711 },
  ],
};
const passed: CheckResult = { kind: 'passed' };
const failed = (reason: string): CheckResult => ({ kind: 'failed', reason });

/** Makes one check and records the requests to the other side. */
async function checked(
  check: ProbeCheck,
  answers: { http?: () => number; grpc?: () => string; tcp?: boolean; exec?: Exec } = {},
) {
  const asked: unknown[] = [];
  const deps: CheckDeps = {
    connect: async (...args) => {
      asked.push(args);
      return answers.tcp ?? false;
    },
    probeClients: {
      http: async (request) => {
        asked.push(request);
        return answers.http?.() ?? 200;
      },
      grpc: async (request) => {
        asked.push(request);
        return answers.grpc?.() ?? 'SERVING';
      },
    },
    runtime: {
      async *exec(containerId, request) {
        asked.push([containerId, request]);
        yield* answers.exec?.(request) ?? [];
      },
    },
  };
  return {
    asked,
    result: await checkContainer(
      { check, timeoutMs: 700 },
      container,
      deps,
      new AbortController().signal,
    ),
  };
}
type Exec = (request: ExecRequest) => Iterable<ExecEvent>;
const wrote = (text: string): ExecEvent => ({
  kind: 'output',
  stream: 'stderr',
  data: new TextEncoder().encode(text),
});
const exited = (exitCode: number): ExecEvent => ({ kind: 'exited', exitCode });
const fails =
  (kind: 'invalid' | 'deadline' | 'unavailable' | 'precondition', message: string) => (): never => {
    throw new CloudlessError(kind, message);
  };

describe('checkContainer with an HTTP check', () => {
  const check: ProbeCheck = {
    kind: 'http',
    portName: 'http',
    path: '/healthz?full',
    headers: { Host: 'web' },
  };

  it('sends path and headers to the endpoint of its port', async () => {
    const { asked } = await checked(check);
    expect(asked).toEqual([
      { ip: '127.0.0.2', port: 4_711, path: '/healthz?full', headers: { Host: 'web' } },
    ]);
  });

  it.each([199, 200, 204, 301, 399, 400, 404, 503])(
    'passes or fails by HTTP status %i',
    async (status) => {
      const good = status >= 200 && status <= 399;
      const { result } = await checked(check, { http: () => status });
      expect(result).toEqual(good ? passed : failed(`HTTP ${status} from /healthz?full`));
    },
  );

  it('fails without an answer, naming the port', async () => {
    const { result } = await checked(check, { http: fails('unavailable', 'connection refused') });
    expect(result).toEqual(failed('connection refused at port http'));
  });
});

describe('checkContainer with a TCP check', () => {
  const check: ProbeCheck = { kind: 'tcp', portName: 'http' };
  it.each([
    { tcp: true, expected: passed },
    { tcp: false, expected: failed('no connection to port http') },
  ])('passes when the connection is accepted: $tcp', async ({ tcp, expected }) => {
    const { asked, result } = await checked(check, { tcp });
    expect(result).toEqual(expected);
    expect(asked).toEqual([['127.0.0.2', 4_711, 700]]);
  });

  it('fails for a port that the container does not have', async () => {
    expect((await checked({ kind: 'tcp', portName: 'dns' }, { tcp: true })).result).toEqual(
      failed('port dns is not declared'),
    );
  });
});

describe('checkContainer with a gRPC check', () => {
  const check: ProbeCheck = { kind: 'grpc', portName: 'http', service: 'shop.Cart' };
  it.each([
    { status: 'SERVING', service: 'shop.Cart', expected: passed },
    {
      status: 'NOT_SERVING',
      service: 'shop.Cart',
      expected: failed('gRPC health NOT_SERVING for service shop.Cart'),
    },
    { status: 'UNKNOWN', service: '', expected: failed('gRPC health UNKNOWN') },
  ])(
    'passes or fails by status $status of service "$service"',
    async ({ status, service, expected }) => {
      const { asked, result } = await checked({ ...check, service }, { grpc: () => status });
      expect(result).toEqual(expected);
      expect(asked).toEqual([{ ip: '127.0.0.2', port: 4_711, service }]);
    },
  );
});

describe('checkContainer with an exec check', () => {
  const check: ProbeCheck = { kind: 'exec', command: ['test', '-f', 'ok'] };

  it('runs the command in the container with the timeout', async () => {
    const { asked } = await checked(check, { exec: () => [exited(0)] });
    expect(asked).toEqual([[container.id, { command: ['test', '-f', 'ok'], timeoutMs: 700 }]]);
  });

  it.each<{ name: string; exec: Exec; expected: CheckResult }>([
    { name: 'exit code 0', exec: () => [wrote('fine'), exited(0)], expected: passed },
    {
      name: 'another exit code, with the first line of the output',
      exec: () => [wrote('no fi'), wrote('le\nand more'), exited(3)],
      expected: { kind: 'failed', reason: 'the command ended with exit code 3', detail: 'no file' },
    },
    {
      name: 'a failing command without output',
      exec: () => [exited(1)],
      expected: failed('the command ended with exit code 1'),
    },
    {
      name: 'endless output',
      exec: function* () {
        for (let chunk = 0; chunk < 1_000; chunk += 1) yield wrote('x'.repeat(1_000));
        yield exited(1);
      },
      expected: {
        kind: 'failed',
        reason: 'the command ended with exit code 1',
        detail: 'x'.repeat(160),
      },
    },
    {
      name: 'a missing executable',
      exec: fails('invalid', 'no executable test'),
      expected: failed('no executable test'),
    },
    {
      name: 'a timeout',
      exec: fails('deadline', 'took too long'),
      expected: failed('no answer within 700 ms'),
    },
    {
      name: 'an unavailable runtime',
      exec: fails('unavailable', 'the supervisor went away'),
      expected: { kind: 'unknown', reason: 'the supervisor went away' },
    },
    {
      name: 'an exited container',
      exec: fails('precondition', 'is not running'),
      expected: { kind: 'unknown', reason: 'is not running' },
    },
  ])('handles $name', async ({ exec, expected }) => {
    expect((await checked(check, { exec })).result).toEqual(expected);
  });
});
