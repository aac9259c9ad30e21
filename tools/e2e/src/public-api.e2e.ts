import {
  Event_Category as Category,
  RolloutStatus_Phase,
  type WatchWorkloadsResponse_Kind as WatchKind,
  type ReplicaStatus,
  type Workload,
} from '@cloudless/api';
import {
  ADMIN,
  AGENT,
  COORDINATOR,
  CONFIGS,
  IDENTITY,
  NETWORK,
  NODE_NETWORK,
  POLICY,
  SECRETS,
  CurlStream,
  USER,
  buildSchema,
  createBufCurl,
  createBufCurlHttp1,
  listServices,
  plainHttp,
  postRaw,
  type CallResult,
  type Caller,
} from './support/calls.js';
import { QUICK, RealCluster, TALKER_COMMAND } from './support/cluster.js';

let cluster: RealCluster;
let schema = '';
let agentUrl = '';
beforeAll(async () => {
  cluster = await RealCluster.start([]);
  agentUrl = `http://${await cluster.startAgent('agent-1', 'zone-a')}`;
  schema = await buildSchema(cluster.directory);
});
afterAll(() => cluster.stop());

const overHttp2 = [createBufCurl('connect'), createBufCurl('grpc'), createBufCurl('grpcweb')];
const callers: readonly Caller[] = [
  ...overHttp2,
  createBufCurlHttp1('connect', () => schema),
  createBufCurlHttp1('grpcweb', () => schema),
  plainHttp,
];
const toRpcPath = (method: string): string => `${COORDINATOR}/${method}`;
/** Sends a call as a POST of JSON. */
const postJson = (method: string, body: unknown): Promise<CallResult> =>
  plainHttp.call(cluster.url, toRpcPath(method), body);
/** Returns the only response message of a call. Expects that the call succeeds. */
const requireOnly = async (result: Promise<CallResult>): Promise<unknown> => {
  const { code, message, items } = await result;
  expect({ code, message, count: items.length }).toEqual({ code: 'ok', message: '', count: 1 });
  return items[0];
};
const sleeper = { command: ['sleep', '1000'], rollout: { minReadyDuration: '0s' } };

describe.each(
  callers.map((caller, index) => ({ caller, name: caller.name, namespace: `client-${index}` })),
)('public API through $name', ({ caller, namespace }) => {
  const call = (method: string, body: object): Promise<CallResult> =>
    caller.call(cluster.url, toRpcPath(method), { namespace, ...body });

  it('creates, gets, updates, scales, lists and deletes a workload, also when no node can run it', async () => {
    const spec = { image: 'nginx:alpine', replicas: 2, labels: { app: 'test' } };
    const created = await requireOnly(call('CreateWorkload', { name: 'test', spec }));
    expect(created).toMatchObject({
      namespace,
      name: 'test',
      generation: '1',
      spec,
      status: { phase: 'PENDING' },
    });
    await cluster.waitForWorkload(`${namespace}/test`, ({ status }) =>
      status!.reason.includes('no container runtime'),
    );
    expect(await requireOnly(call('GetWorkload', { name: 'test' }))).toMatchObject({
      uid: (created as { uid: string }).uid,
      spec,
      status: {
        phase: 'PENDING',
        desiredReplicas: 2,
        readyReplicas: 0,
        reason: '2 of 2 replicas without a node: no node fits: no container runtime: 1 of 1 nodes',
      },
    });
    const update = { name: 'test', spec: { image: 'nginx:1.27-alpine' } };
    expect(await requireOnly(call('UpdateWorkload', update))).toMatchObject({
      generation: '2',
      spec: { ...spec, image: 'nginx:1.27-alpine' },
      status: { version: 2 },
    });
    expect(await requireOnly(call('ScaleWorkload', { name: 'test', replicas: 0 }))).toMatchObject({
      generation: '3',
      spec: { replicas: 0 },
      status: { version: 2, desiredReplicas: 0 },
    });
    const listWith = async (labelSelector: string): Promise<unknown> =>
      requireOnly(call('ListWorkloads', { labelSelector }));
    expect(await listWith('app=test')).toMatchObject({
      workloads: [{ namespace, name: 'test' }],
      nextPageToken: '',
    });
    expect(await listWith('app!=test')).toMatchObject({ workloads: [], nextPageToken: '' });
    expect(await requireOnly(call('DeleteWorkload', { name: 'test' }))).toMatchObject({
      name: 'test',
      status: { phase: 'TERMINATING' },
    });
    await cluster.waitUntilDeleted(`${namespace}/test`);
    expect(await call('GetWorkload', { name: 'test' })).toMatchObject({
      code: 'not_found',
      message: `workload "${namespace}/test" not found`,
      items: [],
    });
  });
});

describe('AgentService', () => {
  let replica: ReplicaStatus;
  beforeAll(async () => {
    const spec = {
      ...QUICK,
      command: TALKER_COMMAND,
      ports: [{ name: 'http', containerPort: 80 }],
    };
    await cluster.client.createWorkload({ name: 'talker', spec });
    replica = (await cluster.waitUntilSettled('talker')).status!.replicas[0]!;
  });

  const servers = [
    { server: 'the port of the coordinator', url: () => cluster.url },
    { server: 'the port of the agent', url: () => agentUrl },
  ];
  const extractLines = (items: readonly unknown[], stream: string): readonly string[] =>
    (items as readonly { readonly stream: string; readonly line: string }[])
      .filter((item) => item.stream === stream)
      .map(({ line }) => line);

  describe.each(servers)('on $server', ({ url }) => {
    it.each(callers.map((caller) => ({ caller, name: caller.name })))(
      'runs a command through $name',
      async ({ caller }) => {
        const command = ['sh', '-c', 'echo out; echo err >&2; exit 3'];
        expect(
          await requireOnly(
            caller.call(url(), `${AGENT}/ExecCommand`, {
              container_id: replica.containerId,
              command,
            }),
          ),
        ).toMatchObject({
          stdout: 'out\n',
          stderr: 'err\n',
          exitCode: 3,
          containerId: replica.containerId,
          replicaId: replica.id,
          truncated: false,
        });
      },
    );

    it('returns exit code 127 for a missing command and 126 for a file that is not executable', async () => {
      const exec = (command: readonly string[]): Promise<CallResult> =>
        plainHttp.call(url(), `${AGENT}/ExecCommand`, {
          containerId: replica.containerId.slice(0, 12),
          command,
        });
      const id = replica.containerId.slice(0, 12);
      const stderr = `container ${id}: command: no executable file /no/such/program\n`;
      expect(await requireOnly(exec(['/no/such/program']))).toMatchObject({
        exitCode: 127,
        stdout: '',
        stderr,
      });
      expect(await requireOnly(exec(['/etc/passwd']))).toMatchObject({ exitCode: 126, stdout: '' });
      expect(await requireOnly(exec(['sh', '-c', '/no/such/program']))).toMatchObject({
        exitCode: 127,
        stdout: '',
      });
    });

    it.each(overHttp2.map((caller) => ({ caller, name: caller.name })))(
      'streams the existing log through $name',
      async ({ caller }) => {
        const { code, items } = await caller.call(url(), `${AGENT}/StreamLogs`, {
          container_id: replica.containerId,
          follow: false,
        });
        expect({
          code,
          out: extractLines(items, 'STDOUT')[0],
          err: extractLines(items, 'STDERR')[0],
        }).toEqual({
          code: 'ok',
          out: 'up',
          err: 'up',
        });
        expect(items[0]).toMatchObject({
          containerId: replica.containerId,
          replicaId: replica.id,
          sequence: '1',
          partial: false,
        });
      },
    );

    it.each(['connect', 'grpc', 'grpcweb'] as const)(
      'follows the log through buf curl with protocol %s',
      async (protocol) => {
        const path = `${protocol}-${new URL(url()).port}`;
        const stream = CurlStream.start(protocol, url(), `${AGENT}/StreamLogs`, {
          container_id: replica.containerId,
          follow: true,
        });
        try {
          await stream.waitUntil(
            (items) =>
              extractLines(items, 'STDOUT').includes('up') &&
              extractLines(items, 'STDERR').includes('up'),
          );
          const { ip, port } = replica.endpoints[0]!;
          await fetch(`http://${ip}:${port}/${path}`);
          await fetch(`http://${ip}:${port}/error-${path}`);
          const items = await stream.waitUntil((all) =>
            extractLines(all, 'STDERR').includes(`/error-${path}`),
          );
          expect(extractLines(items, 'STDOUT')).toContain(`/${path}`);
          const sequences = (items as readonly { readonly sequence: string }[]).map(
            ({ sequence }) => Number(sequence),
          );
          expect(sequences).toEqual(sequences.map((_, index) => index + 1));
        } finally {
          await stream.process.kill('SIGTERM');
        }
      },
    );

    it('serves health of each service and reflection', async () => {
      const services =
        url() === cluster.url
          ? [
              ...[ADMIN, AGENT, CONFIGS, COORDINATOR, IDENTITY, NETWORK, NODE_NETWORK, POLICY],
              ...[SECRETS, USER],
            ]
          : [AGENT];
      expect(await listServices(url())).toEqual([
        ...services,
        'grpc.health.v1.Health',
        'grpc.reflection.v1.ServerReflection',
        'grpc.reflection.v1alpha.ServerReflection',
      ]);
      const checks = overHttp2.flatMap((caller) =>
        ['', ...services].map((service) =>
          requireOnly(caller.call(url(), 'grpc.health.v1.Health/Check', { service })),
        ),
      );
      for (const check of await Promise.all(checks)) expect(check).toEqual({ status: 'SERVING' });
      expect(
        await createBufCurl('grpc').call(url(), 'grpc.health.v1.Health/Check', {
          service: 'no.such.Service',
        }),
      ).toMatchObject({
        code: 'not_found',
        message: 'this server has no service "no.such.Service"',
      });
    });
  });

  it('ends a followed log when its container ends', async () => {
    await cluster.client.createWorkload({
      name: 'short',
      spec: { ...QUICK, command: ['sh', '-c', 'echo up; exec sleep 1000'] },
    });
    const { containerId } = (await cluster.waitUntilSettled('short')).status!.replicas[0]!;
    const stream = CurlStream.start('grpc', cluster.url, `${AGENT}/StreamLogs`, {
      container_id: containerId,
      follow: true,
    });
    await stream.waitUntil((items) => items.length === 1);
    await cluster.client.deleteWorkload({ name: 'short' });
    expect({
      code: await stream.process.exited,
      lines: extractLines(stream.items, 'STDOUT'),
    }).toEqual({
      code: 0,
      lines: ['up'],
    });
  });
});

describe('ops port', () => {
  it.each(['/health', '/ready'])('answers ok on %s', async (path) => {
    const response = await fetch(`${cluster.opsUrl}${path}`);
    expect({ status: response.status, body: await response.json() }).toEqual({
      status: 200,
      body: { status: 'ok', ...(path === '/health' ? { role: 'leader', epoch: 1 } : {}) },
    });
  });

  it('counts calls on /metrics', async () => {
    const response = await fetch(`${cluster.opsUrl}/metrics`);
    expect(response.headers.get('content-type')).toBe('text/plain; version=0.0.4; charset=utf-8');
    const text = await response.text();
    expect(text).toMatch(
      /^cloudless_rpc_calls_total\{method="[^"]*CreateWorkload",code="ok",reason=""\} [1-9]\d*$/m,
    );
    expect(text).toMatch(/^# TYPE cloudless_rpc_duration_seconds histogram$/m);
  });

  it('answers 404 for other paths', async () => {
    expect((await fetch(`${cluster.opsUrl}/other`)).status).toBe(404);
  });
});

describe('CreateWorkload', () => {
  it('accepts 0 replicas, and responses contain the 0', async () => {
    await requireOnly(
      postJson('CreateWorkload', { name: 'none', spec: { ...sleeper, replicas: 0 } }),
    );
    await cluster.waitUntilSettled('none');
    const { text } = await postRaw(cluster.url, toRpcPath('GetWorkload'), '{"name":"none"}');
    expect(text).toContain('"replicas":0');
    expect(text).toContain('"readyReplicas":0');
    expect(JSON.parse(text)).toMatchObject({
      spec: { replicas: 0 },
      status: { phase: 'RUNNING', desiredReplicas: 0, reason: '' },
    });
  });

  it.each([
    {
      body: '{"replicaz":1}',
      message:
        'cannot decode message cloudless.api.WorkloadSpec from JSON: key "replicaz" is unknown',
    },
    { body: '{"replicas":-1}', message: 'spec.replicas: must be from 0 to 1000000' },
  ])('rejects the spec fields $body', async ({ body, message }) => {
    const spec = { ...sleeper, ...(JSON.parse(body) as object) };
    expect(await postJson('CreateWorkload', { name: 'refused', spec })).toEqual({
      code: 'invalid_argument',
      message,
      items: [],
    });
    expect(await postJson('GetWorkload', { name: 'refused' })).toMatchObject({ code: 'not_found' });
  });
});

describe('request id', () => {
  const create = { name: 'once', spec: { ...sleeper, replicas: 0 }, requestId: 'create-once' };

  it('makes a repeated request return the first result and change nothing', async () => {
    const first = await requireOnly(postJson('CreateWorkload', create));
    expect(await requireOnly(postJson('CreateWorkload', create))).toEqual(first);
    const scale = { name: 'once', replicas: 1, requestId: 'scale-once' };
    await requireOnly(postJson('ScaleWorkload', scale));
    await requireOnly(postJson('ScaleWorkload', { name: 'once', replicas: 0 }));
    expect(await requireOnly(postJson('ScaleWorkload', scale))).toMatchObject({
      generation: '2',
      spec: { replicas: 1 },
    });
    expect(await requireOnly(postJson('GetWorkload', { name: 'once' }))).toMatchObject({
      generation: '3',
      spec: { replicas: 0 },
    });
  });

  it.each([
    {
      name: 'a request with another body',
      method: 'CreateWorkload',
      body: { ...create, name: 'twice' },
    },
    {
      name: 'a request to another method',
      method: 'DeleteWorkload',
      body: { name: 'once', requestId: create.requestId },
    },
  ])('is rejected in $name', async ({ method, body }) => {
    expect(await postJson(method, body)).toEqual({
      code: 'invalid_argument',
      message:
        'request_id: was used for another CreateWorkload within the last hour; use a new one for a new request',
      items: [],
    });
    expect(await postJson('GetWorkload', { name: 'twice' })).toMatchObject({ code: 'not_found' });
    expect(await requireOnly(postJson('GetWorkload', { name: 'once' }))).toMatchObject({
      generation: '3',
    });
  });
});

/** Returns the fields that a refused or empty change must not modify. */
const getIdentity = ({ spec, generation, deletionRequestedAt, status }: Workload) => ({
  spec,
  generation,
  deletionRequestedAt,
  version: status!.version,
  containers: status!.replicas.map(({ containerId }) => containerId),
});

describe('UpdateWorkload and ScaleWorkload', () => {
  const read = (): Promise<Workload> => cluster.client.getWorkload({ name: 'changing' });
  beforeAll(async () => {
    const spec = {
      ...QUICK,
      command: ['sleep', '1000'],
      replicas: 1,
      env: { A: '1' },
      labels: { kept: 'yes' },
      rollout: { ...QUICK.rollout, maxSurge: 2 },
    };
    await cluster.client.createWorkload({ name: 'changing', spec });
    await cluster.waitForWorkload(
      'changing',
      ({ status }) =>
        status!.readyReplicas === 1 && status!.rollout!.phase === RolloutStatus_Phase.COMPLETED,
    );
  });

  it.each([
    { method: 'UpdateWorkload', body: { spec: { env: { A: '2' } } } },
    { method: 'ScaleWorkload', body: { replicas: 3 } },
    { method: 'DeleteWorkload', body: {} },
  ])('fail with ABORTED when $method expects another generation', async ({ method, body }) => {
    const before = await read();
    expect(await postJson(method, { name: 'changing', expectedGeneration: '7', ...body })).toEqual({
      code: 'aborted',
      message:
        'workload "default/changing" is at generation 1, not 7; read the workload again and repeat the change',
      items: [],
    });
    expect(getIdentity(await read())).toEqual(getIdentity(before));
  });

  it.each([
    {
      name: 'an update with the current values',
      method: 'UpdateWorkload',
      body: { spec: { env: { A: '1' } } },
    },
    {
      name: 'a masked update with the current values',
      method: 'UpdateWorkload',
      body: { spec: { command: ['sleep', '1000'] }, updateMask: 'command' },
    },
    {
      name: 'a mask of a field that is not set',
      method: 'UpdateWorkload',
      body: { spec: {}, updateMask: 'workingDir' },
    },
    { name: 'a scale to the same number', method: 'ScaleWorkload', body: { replicas: 1 } },
  ])('change nothing for $name', async ({ method, body }) => {
    const before = await read();
    const categories = [Category.WORKLOAD, Category.ROLLOUT, Category.SCHEDULING];
    const { events } = await cluster.client.listEvents({ workload: 'changing', categories });
    expect(await requireOnly(postJson(method, { name: 'changing', ...body }))).toMatchObject({
      generation: '1',
      status: { version: 1 },
    });
    expect(getIdentity(await read())).toEqual(getIdentity(before));
    expect((await cluster.client.listEvents({ workload: 'changing', categories })).events).toEqual(
      events,
    );
  });

  it('change the set fields without a mask, and clear unset fields that a mask names', async () => {
    await requireOnly(
      postJson('UpdateWorkload', { name: 'changing', spec: { rollout: { maxUnavailable: 1 } } }),
    );
    expect((await read()).spec).toMatchObject({
      env: { A: '1' },
      labels: { kept: 'yes' },
      rollout: { maxSurge: 2, maxUnavailable: 1 },
    });
    const masked = {
      name: 'changing',
      spec: { command: ['ignored'], env: { A: '9' } },
      updateMask: 'rollout.maxUnavailable,labels',
    };
    await requireOnly(postJson('UpdateWorkload', masked));
    const { spec, status } = await read();
    expect(spec).toMatchObject({
      command: ['sleep', '1000'],
      env: { A: '1' },
      labels: {},
      rollout: { maxSurge: 2 },
    });
    expect(spec!.rollout!.maxUnavailable).toBeUndefined();
    expect(status!.version).toBe(2);
    await cluster.waitUntilSettled('changing');
  });

  it.each([
    {
      updateMask: 'nothingLikeIt',
      message: 'update_mask: "nothing_like_it" is not a field of WorkloadSpec',
    },
    { updateMask: 'env.A', message: expect.stringMatching(/^update_mask: "env\./) as string },
    { updateMask: '*,env', message: 'update_mask: "*" cannot be combined with other paths' },
  ])('reject the mask $updateMask', async ({ updateMask, message }) => {
    const before = await read();
    expect(await postJson('UpdateWorkload', { name: 'changing', spec: {}, updateMask })).toEqual({
      code: 'invalid_argument',
      message,
      items: [],
    });
    expect((await read()).generation).toBe(before.generation);
  });
});

describe('WatchWorkloads', () => {
  it.each(['connect', 'grpc', 'grpcweb'] as const)(
    'sends the current workloads, SYNCED, then every change through buf curl with protocol %s',
    async (protocol) => {
      const namespace = `watch-${protocol}`;
      await cluster.client.createWorkload({
        namespace,
        name: 'old',
        spec: { command: ['sleep', '1000'], replicas: 0 },
      });
      await cluster.waitForWorkload(
        `${namespace}/old`,
        ({ status }) =>
          status!.observedGeneration === 1n &&
          status!.rollout!.phase === RolloutStatus_Phase.COMPLETED,
      );
      const stream = CurlStream.start(protocol, cluster.url, toRpcPath('WatchWorkloads'), {
        namespace,
      });
      const has = (kind: keyof typeof WatchKind, name: string) => (items: readonly unknown[]) =>
        (
          items as readonly {
            readonly kind: string;
            readonly workload?: { readonly name: string };
          }[]
        ).some((item) => item.kind === kind && (name === '' || item.workload?.name === name));
      try {
        const first = await stream.waitUntil(has('SYNCED', ''));
        expect(first).toMatchObject([
          { kind: 'PUT', workload: { namespace, name: 'old', generation: '1' } },
          { kind: 'SYNCED' },
        ]);
        await cluster.client.createWorkload({
          namespace,
          name: 'new',
          spec: { command: ['sleep', '1000'], replicas: 0 },
        });
        await stream.waitUntil(has('PUT', 'new'));
        await cluster.client.deleteWorkload({ namespace, name: 'old' });
        const all = await stream.waitUntil(has('DELETED', 'old'));
        const revisions = (all as readonly { readonly revision: string }[]).map(({ revision }) =>
          Number(revision),
        );
        expect(revisions).toEqual([...revisions].sort((a, b) => a - b));
      } finally {
        await stream.process.kill('SIGTERM');
      }
    },
  );
});
