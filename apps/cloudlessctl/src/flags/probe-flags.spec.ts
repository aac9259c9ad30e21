import { create, type MessageInitShape } from '@bufbuild/protobuf';
import { durationFromMs } from '@bufbuild/protobuf/wkt';
import {
  ProbeSchema,
  ReplicaStatus_Phase,
  type CreateWorkloadRequest,
  type UpdateWorkloadRequest,
} from '@cloudless/api';
import { aWorkload, runCli } from '../testing/run-cli.js';

describe('probe flags', () => {
  it.each([
    {
      given: 'http:8080/healthz?a=b',
      check: { case: 'http', value: { port: '8080', path: '/healthz?a=b' } },
    },
    { given: 'http:web', check: { case: 'http', value: { port: 'web', path: '' } } },
    { given: 'tcp:8080', check: { case: 'tcp', value: { port: '8080' } } },
    { given: 'grpc:api', check: { case: 'grpc', value: { port: 'api', service: '' } } },
    {
      given: 'grpc:api/shop.Cart',
      check: { case: 'grpc', value: { port: 'api', service: 'shop.Cart' } },
    },
    {
      given: 'exec:test -f /tmp/ok',
      check: { case: 'exec', value: { command: ['test', '-f', '/tmp/ok'] } },
    },
  ])('set the check of each probe for $given', async ({ given, check }) => {
    const requests: CreateWorkloadRequest[] = [];
    const coordinator = {
      createWorkload: (request: CreateWorkloadRequest) => {
        requests.push(request);
        return aWorkload();
      },
    };
    const argv = [
      'workload',
      'create',
      'web',
      '--image',
      'x',
      '--liveness-probe',
      given,
      '--readiness-probe',
      given,
    ];
    expect((await runCli([...argv, '--startup-probe', given], { coordinator })).exitCode).toBe(0);
    expect(requests[0]?.spec).toMatchObject({
      livenessProbe: { check },
      readinessProbe: { check },
      startupProbe: { check },
    });
  });

  it.each(['8080', 'http:', 'http:a b', 'tcp:8080/x', 'exec:', 'exec: ', 'udp:53'])(
    'with the invalid value %j are rejected with exit code 2',
    async (given) => {
      const { exitCode, stderr } = await runCli(
        ['workload', 'create', 'web', '--image', 'x', '--liveness-probe', given],
        {},
      );
      expect([exitCode, stderr.split('\n')[0]]).toEqual([
        2,
        `cloudlessctl: --liveness-probe: expected http:8080/path, tcp:8080, grpc:8080/service or exec:command, got ${JSON.stringify(given)}`,
      ]);
    },
  );

  it('replace the whole probe in an update', async () => {
    const requests: UpdateWorkloadRequest[] = [];
    const coordinator = {
      updateWorkload: (request: UpdateWorkloadRequest) => {
        requests.push(request);
        return aWorkload();
      },
    };
    await runCli(['workload', 'update', 'web', '--readiness-probe', 'tcp:80'], { coordinator });
    expect(requests[0]?.updateMask?.paths).toEqual(['readiness_probe']);
  });
});

describe('cloudlessctl describe', () => {
  /** Prints the description of a workload after `change` has changed it. */
  async function describeWorkload(
    change: (workload: ReturnType<typeof aWorkload>) => void,
  ): Promise<string> {
    const workload = aWorkload();
    change(workload);
    const coordinator = { getWorkload: () => workload, listEvents: () => ({}) };
    return (await runCli(['describe', 'web'], { coordinator })).stdout;
  }

  it('shows check, period, timeout and thresholds of each probe', async () => {
    const probe = (init: MessageInitShape<typeof ProbeSchema>) => create(ProbeSchema, init);
    const times = {
      period: durationFromMs(10_000),
      timeout: durationFromMs(1_500),
      failureThreshold: 3,
      successThreshold: 1,
    };
    const stdout = await describeWorkload(({ spec }) => {
      if (spec === undefined) return;
      const exec = { case: 'exec' as const, value: { command: ['cat', '/tmp/ok'] } };
      spec.livenessProbe = probe({ check: exec, ...times, initialDelay: durationFromMs(0) });
      const http = { case: 'http', value: { port: 'http', path: '/healthz' } } as const;
      spec.readinessProbe = probe({
        check: http,
        ...times,
        initialDelay: durationFromMs(5_000),
        successThreshold: 2,
      });
      spec.startupProbe = probe({
        check: { case: 'grpc', value: { port: 'api', service: 'shop.Cart' } },
      });
    });
    expect(stdout).toMatch(
      /Liveness: +exec:cat \/tmp\/ok, every 10s, timeout 1.5s, fails after 3\n/,
    );
    expect(stdout).toMatch(
      /Readiness: +http:http\/healthz, after 5s, every 10s, timeout 1.5s, passes after 2, fails after 3\n/,
    );
    expect(stdout).toMatch(/Startup: +grpc:api\/shop.Cart, every 10s, timeout 1s, fails after 3\n/);
  });

  it.each([
    {
      name: 'the current failure of the readiness probe',
      replica: { ready: false, reason: 'readiness probe: HTTP 503 from /healthz, 3 of 3 failed' },
      shows:
        'no      node1   a      0          60m   -           readiness probe: HTTP 503 from /healthz, 3 of 3 failed\n',
    },
    {
      name: 'why the previous container was ended when the replica was restarted',
      replica: {
        restarts: 1,
        lastExitCode: 143,
        lastEndReason: 'liveness probe: HTTP 500 from /livez, 3 of 3 failed (killed by SIGTERM)',
      },
      shows:
        '(last ended: liveness probe: HTTP 500 from /livez, 3 of 3 failed (killed by SIGTERM))\n',
    },
    {
      name: 'an exit code without another reason',
      replica: { lastExitCode: 3, lastEndReason: 'exit code 3' },
      shows: '(last exit code 3)\n',
    },
    {
      name: 'an exit code from an agent that reports no reason',
      replica: { lastExitCode: 3 },
      shows: '(last exit code 3)\n',
    },
  ])('shows $name', async ({ replica, shows }) => {
    const stdout = await describeWorkload(({ status }) => {
      Object.assign(status?.replicas[0] ?? {}, { phase: ReplicaStatus_Phase.RUNNING, ...replica });
    });
    expect(stdout).toContain(shows);
  });
});
