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

/** Makes one check with a timeout of 700 ms and records the requests to clients and runtime. */
async function runCheck(
  check: ProbeCheck,
  answers: { http?: () => number; grpc?: () => string; tcp?: boolean; exec?: Exec } = {},
) {
  const requests: unknown[] = [];
  const deps: CheckDeps = {
    connect: async (...args) => {
      requests.push(args);
      return answers.tcp ?? false;
    },
    probeClients: {
      http: async (request) => {
        requests.push(request);
        return answers.http?.() ?? 200;
      },
      grpc: async (request) => {
        requests.push(request);
        return answers.grpc?.() ?? 'SERVING';
      },
    },
    runtime: {
      async *exec(containerId, request) {
        requests.push([containerId, request]);
        yield* answers.exec?.(request) ?? [];
      },
    },
  };
  return {
    requests,
    result: await checkContainer(
      { check, timeoutMs: 700 },
      container,
      deps,
      new AbortController().signal,
    ),
  };
}
type Exec = (request: ExecRequest) => Iterable<ExecEvent>;
const output = (text: string): ExecEvent => ({
  kind: 'output',
  stream: 'stderr',
  data: new TextEncoder().encode(text),
});
const exited = (exitCode: number): ExecEvent => ({ kind: 'exited', exitCode });
const throwError =
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

  it('sends a request with path and headers to the endpoint of its port', async () => {
    const { requests } = await runCheck(check);
    expect(requests).toEqual([
      { ip: '127.0.0.2', port: 4_711, path: '/healthz?full', headers: { Host: 'web' } },
    ]);
  });

  it.each([200, 204, 301, 399])('passes when the server answers HTTP %i', async (status) => {
    const { result } = await runCheck(check, { http: () => status });
    expect(result).toEqual(passed);
  });

  it.each([199, 400, 404, 503])('fails when the server answers HTTP %i', async (status) => {
    const { result } = await runCheck(check, { http: () => status });
    expect(result).toEqual(failed(`HTTP ${status} from /healthz?full`));
  });

  it('fails with the error and the port name when the server does not answer', async () => {
    const { result } = await runCheck(check, {
      http: throwError('unavailable', 'connection refused'),
    });
    expect(result).toEqual(failed('connection refused at port http'));
  });
});

describe('checkContainer with a TCP check', () => {
  const check: ProbeCheck = { kind: 'tcp', portName: 'http' };
  it.each([
    { tcp: true, connection: 'accepted', expected: passed },
    { tcp: false, connection: 'refused', expected: failed('no connection to port http') },
  ])(
    'has the result $expected.kind when the connection is $connection',
    async ({ tcp, expected }) => {
      const { requests, result } = await runCheck(check, { tcp });
      expect(result).toEqual(expected);
      expect(requests).toEqual([['127.0.0.2', 4_711, 700]]);
    },
  );

  it('fails when the container does not declare the port', async () => {
    expect((await runCheck({ kind: 'tcp', portName: 'dns' }, { tcp: true })).result).toEqual(
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
    'has the result $expected.kind when service "$service" is $status',
    async ({ status, service, expected }) => {
      const { requests, result } = await runCheck({ ...check, service }, { grpc: () => status });
      expect(result).toEqual(expected);
      expect(requests).toEqual([{ ip: '127.0.0.2', port: 4_711, service }]);
    },
  );
});

describe('checkContainer with an exec check', () => {
  const check: ProbeCheck = { kind: 'exec', command: ['test', '-f', 'ok'] };

  it('runs the command in the container with the timeout', async () => {
    const { requests } = await runCheck(check, { exec: () => [exited(0)] });
    expect(requests).toEqual([[container.id, { command: ['test', '-f', 'ok'], timeoutMs: 700 }]]);
  });

  it.each<{ name: string; exec: Exec; expected: CheckResult }>([
    { name: 'exit code 0', exec: () => [output('fine'), exited(0)], expected: passed },
    {
      name: 'exit code 3, with the first line of the output',
      exec: () => [output('no fi'), output('le\nand more'), exited(3)],
      expected: { kind: 'failed', reason: 'the command ended with exit code 3', detail: 'no file' },
    },
    {
      name: 'a failing command without output',
      exec: () => [exited(1)],
      expected: failed('the command ended with exit code 1'),
    },
    {
      name: 'a failing command with much output',
      exec: function* () {
        for (let chunk = 0; chunk < 1_000; chunk += 1) yield output('x'.repeat(1_000));
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
      exec: throwError('invalid', 'no executable test'),
      expected: failed('no executable test'),
    },
    {
      name: 'a timeout',
      exec: throwError('deadline', 'took too long'),
      expected: failed('no answer within 700 ms'),
    },
    {
      name: 'an unavailable runtime',
      exec: throwError('unavailable', 'the supervisor went away'),
      expected: { kind: 'unknown', reason: 'the supervisor went away' },
    },
    {
      name: 'an exited container',
      exec: throwError('precondition', 'is not running'),
      expected: { kind: 'unknown', reason: 'is not running' },
    },
  ])('has the result $expected.kind for $name', async ({ exec, expected }) => {
    expect((await runCheck(check, { exec })).result).toEqual(expected);
  });
});
