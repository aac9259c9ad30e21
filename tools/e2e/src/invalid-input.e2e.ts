import { randomBytes } from 'node:crypto';
import { chmod, mkdir, writeFile } from 'node:fs/promises';
import { connect } from 'node:http2';
import { createServer, type AddressInfo, type Server } from 'node:net';
import { join } from 'node:path';
import { Code, ConnectError } from '@connectrpc/connect';
import {
  Event_Category as Category,
  RolloutStatus_Phase,
  type Rollout_Strategy,
  type WorkloadSpec_Mode,
} from '@cloudless/api';
import { AGENT, COORDINATOR, plainHttp, postRaw } from './support/calls.js';
import { QUICK, RealCluster } from './support/cluster.js';
import {
  RunningProgram,
  findBundle,
  killAll,
  listProcessesUsing,
  runToEnd,
  type FinishedProgram,
} from './support/processes.js';

let cluster: RealCluster;
let agentUrl = '';
beforeAll(async () => {
  cluster = await RealCluster.start([]);
  agentUrl = `http://${await cluster.startAgent('agent-1', 'zone-a')}`;
  await cluster.client.createWorkload({
    name: 'there',
    spec: { ...QUICK, command: ['sleep', '1000'], replicas: 1 },
  });
  await cluster.waitUntilSettled('there');
  // The end of the rollout adds an event.
  await cluster.waitForWorkload(
    'there',
    ({ status }) => status?.rollout?.phase === RolloutStatus_Phase.COMPLETED,
  );
});
afterAll(() => cluster.stop());

const toRpcPath = (method: string): string => `${COORDINATOR}/${method}`;

/** Returns all state of the cluster that a refused request must not change. */
async function readState(): Promise<unknown> {
  const { workloads } = await cluster.client.listWorkloads({ includeReplicas: true });
  const { nodes } = await cluster.client.listNodes({});
  const { events } = await cluster.client.listEvents({ pageSize: 1000 });
  return {
    workloads: workloads.map(({ name, uid, generation, spec, status }) => ({
      name,
      uid,
      generation,
      spec,
      replicas: status!.replicas,
    })),
    nodes: nodes.map(({ id, labels, cordoned }) => ({ id, labels, cordoned })),
    // the attempt itself adds an audit record
    events: events.filter(({ category }) => category !== Category.AUDIT).map(({ id }) => id),
  };
}

/** Runs an action and expects that it changes no state. */
async function expectUnchanged<Result>(action: () => Promise<Result>): Promise<Result> {
  const before = await readState();
  const result = await action();
  expect(await readState()).toEqual(before);
  return result;
}

const command = ['sleep', '1'];
const create = (name: string, spec: object) => ({
  method: toRpcPath('CreateWorkload'),
  body: { name, spec },
});
const DNS_LABEL =
  'must be a DNS label: lower-case letters, digits and "-", beginning and ending with a letter or digit';
const REPLICAS_RANGE = 'must be from 0 to 1000000';
const exec = (target: object, command: readonly string[] = ['true']) => ({
  method: `${AGENT}/ExecCommand`,
  body: { ...target, command },
});

describe('invalid request', () => {
  it.each([
    {
      name: 'an empty name',
      ...create('', { command }),
      code: 'invalid_argument',
      message: `name: must not be empty`,
    },
    {
      name: 'a name of 300 characters',
      ...create('a'.repeat(300), { command }),
      code: 'invalid_argument',
      message: 'name: must be at most 63 characters long',
    },
    {
      name: 'a name that is not a DNS label',
      ...create('Web_1', { command }),
      code: 'invalid_argument',
      message: `name: ${DNS_LABEL}`,
    },
    {
      name: 'no spec',
      method: toRpcPath('CreateWorkload'),
      body: { name: 'new' },
      code: 'invalid_argument',
      message: 'spec: is required',
    },
    {
      name: 'neither image nor command',
      ...create('new', {}),
      code: 'invalid_argument',
      message:
        'spec: image or command is required: an image runs in a container, a command as a process',
    },
    {
      name: 'an image for the process runtime',
      ...create('new', { image: 'nginx:alpine', runtime: 'process' }),
      code: 'invalid_argument',
      message:
        'spec.runtime: the process runtime runs commands, not images; remove runtime or image',
    },
    {
      name: 'an unknown runtime',
      ...create('new', { command, runtime: 'docker' }),
      code: 'invalid_argument',
      message: 'spec.runtime: must be process, cri or empty',
    },
    {
      name: 'an unknown name of an enum',
      ...create('new', { command, rollout: { strategy: 'ROLING_UPDATE' } }),
      code: 'invalid_argument',
      message:
        'spec.rollout.strategy: "ROLING_UPDATE" is not one of ROLLING_UPDATE, RECREATE, BLUE_GREEN',
    },
    {
      name: 'exclusive replicas that are replaced before they have stopped',
      ...create('new', {
        command,
        disconnect: { mode: 'EXCLUSIVE', stopAfter: '10s', lostAfter: '15s' },
      }),
      code: 'invalid_argument',
      message:
        'spec.disconnect.lost_after: 15000 ms is below twice stop_after (20000 ms): the old replica could still run when its replacement starts',
    },
    {
      name: 'an unknown field',
      ...create('new', { command, replicaz: 1 }),
      code: 'invalid_argument',
      message:
        'cannot decode message cloudless.api.WorkloadSpec from JSON: key "replicaz" is unknown',
    },
    {
      name: 'negative replicas',
      ...create('new', { command, replicas: -1 }),
      code: 'invalid_argument',
      message: `spec.replicas: ${REPLICAS_RANGE}`,
    },
    {
      name: 'a scale to a negative number',
      method: toRpcPath('ScaleWorkload'),
      body: { name: 'there', replicas: -1 },
      code: 'invalid_argument',
      message: `replicas: ${REPLICAS_RANGE}`,
    },
    {
      name: 'two ports of one name',
      ...create('new', {
        command,
        ports: [
          { name: 'a', containerPort: 1 },
          { name: 'a', containerPort: 2 },
        ],
      }),
      code: 'invalid_argument',
      message: 'spec.ports[1].name: "a" is used twice',
    },
    {
      name: 'a rollout without a possible move',
      ...create('new', { command, replicas: 3, rollout: { maxSurge: 0, minAvailable: 3 } }),
      code: 'invalid_argument',
      message: 'spec.rollout: max_surge 0 and min_available 3 of 3 leave no possible move',
    },
    {
      name: 'an update to a rollout without a possible move',
      method: toRpcPath('UpdateWorkload'),
      body: { name: 'there', spec: { replicas: 3, rollout: { maxSurge: 0, minAvailable: 3 } } },
      code: 'invalid_argument',
      message: 'spec.rollout: max_surge 0 and min_available 3 of 3 leave no possible move',
    },
    {
      name: 'an invalid label selector',
      method: toRpcPath('ListWorkloads'),
      body: { labelSelector: 'app in' },
      code: 'invalid_argument',
      message:
        'label_selector: cannot parse "app in"; expected key=value, key!=value, key, !key, key in (a,b) or key notin (a,b)',
    },
    {
      name: 'a page token of another server',
      method: toRpcPath('ListWorkloads'),
      body: { pageToken: 'xyz' },
      code: 'invalid_argument',
      message:
        'page_token: is not a token of this server; pass next_page_token of the previous page unchanged',
    },
    {
      name: 'a name that exists',
      ...create('there', { command }),
      code: 'already_exists',
      message: 'workload "default/there" already exists; update it, or choose another name',
    },
    ...['GetWorkload', 'UpdateWorkload', 'DeleteWorkload', 'ListEndpoints', 'ExplainWorkload'].map(
      (method) => ({
        name: `${method} of an unknown name`,
        method: toRpcPath(method),
        body: { name: 'nothing', ...(method === 'UpdateWorkload' ? { spec: { command } } : {}) },
        code: 'not_found',
        message: 'workload "default/nothing" not found',
      }),
    ),
    {
      name: 'an unknown namespace',
      method: toRpcPath('ScaleWorkload'),
      body: { namespace: 'nowhere', name: 'there', replicas: 2 },
      code: 'not_found',
      message: 'workload "nowhere/there" not found',
    },
    {
      name: 'an unknown node',
      method: toRpcPath('CordonNode'),
      body: { nodeId: 'nothing' },
      code: 'not_found',
      message: 'node "nothing" not found',
    },
    {
      name: 'an unknown container',
      ...exec({ containerId: 'ab'.repeat(32) }),
      code: 'not_found',
      message: `container "${'ab'.repeat(32)}" not found`,
    },
    {
      name: 'a container id that is too short',
      ...exec({ containerId: 'abc' }),
      code: 'invalid_argument',
      message: 'container_id: must be 12 to 64 lower-case hex digits',
    },
    {
      name: 'an unknown replica',
      ...exec({ replicaId: '0123456789abcdef-1' }),
      code: 'not_found',
      message: 'replica "0123456789abcdef-1" not found',
    },
    {
      name: 'no target',
      ...exec({}),
      code: 'invalid_argument',
      message: 'container_id: container_id, replica_id, or the name of a workload is required',
    },
    {
      name: 'two targets',
      ...exec({ containerId: 'ab'.repeat(32), name: 'there' }),
      code: 'invalid_argument',
      message: 'name: cannot be combined with container_id',
    },
    {
      name: 'an empty command',
      ...exec({ name: 'there' }, []),
      code: 'invalid_argument',
      message: 'command: must not be empty',
    },
    {
      name: 'an enrolment with the node name of another machine',
      method: toRpcPath('EnrollNode'),
      body: { nodeId: 'agent-1', instanceId: '0123456789abcdef' },
      code: 'already_exists',
      message:
        'node "agent-1" is enrolled by another machine; choose another name, or remove that node first',
    },
    {
      name: 'the removal of a connected node',
      method: toRpcPath('RemoveNode'),
      body: { nodeId: 'agent-1', force: true },
      code: 'failed_precondition',
      message: 'node "agent-1" is connected; stop its agent first, or it would enrol again at once',
    },
  ])('is rejected with $code for $name', async ({ method, body, code, message }) => {
    expect(await expectUnchanged(() => plainHttp.call(cluster.url, method, body))).toEqual({
      code,
      message,
      items: [],
    });
  });

  it.each([
    {
      field: 'volumes[0].empty_dir.size_limit_bytes (only with medium MEMORY)',
      spec: {
        image: 'nginx',
        volumes: [{ name: 'data', mountPath: '/data', emptyDir: { sizeLimitBytes: '1' } }],
      },
    },
    {
      field: 'disconnect.mode (EXCLUSIVE with an image)',
      spec: { image: 'nginx', disconnect: { mode: 'EXCLUSIVE' } },
    },
    { field: 'resources.requests.gpus', spec: { resources: { requests: { gpus: 1 } } } },
  ])(
    'is rejected with UNIMPLEMENTED by create and update when it sets the unsupported field $field',
    async ({ field, spec }) => {
      const refusal = {
        code: 'unimplemented',
        message: `spec.${field}: not supported in this version; leave it out`,
        items: [],
      };
      await expectUnchanged(async () => {
        expect(
          await plainHttp.call(cluster.url, toRpcPath('CreateWorkload'), {
            name: 'new',
            spec: { command, ...spec },
          }),
        ).toEqual(refusal);
        expect(
          await plainHttp.call(cluster.url, toRpcPath('UpdateWorkload'), { name: 'there', spec }),
        ).toEqual(refusal);
      });
    },
  );

  it.each([
    { field: 'volumes', spec: { volumes: [{ name: 'data', mountPath: '/data', emptyDir: {} }] } },
    { field: 'security', spec: { security: { runAsNonRoot: true } } },
    { field: 'network', spec: { network: { hostNetwork: true } } },
    { field: 'image_pull', spec: { imagePull: { policy: 'ALWAYS' } } },
    { field: 'ports[0].host_port', spec: { ports: [{ containerPort: 80, hostPort: 80 }] } },
  ])(
    'is rejected with INVALID_ARGUMENT by create and update when a process sets $field',
    async ({ field, spec }) => {
      const refusal = {
        code: 'invalid_argument',
        message: `spec.${field}: needs a container: set image`,
        items: [],
      };
      await expectUnchanged(async () => {
        expect(
          await plainHttp.call(cluster.url, toRpcPath('CreateWorkload'), {
            name: 'new',
            spec: { command, ...spec },
          }),
        ).toEqual(refusal);
        expect(
          await plainHttp.call(cluster.url, toRpcPath('UpdateWorkload'), { name: 'there', spec }),
        ).toEqual(refusal);
      });
    },
  );

  it('is accepted when fields have their default values, also empty container fields of a process', async () => {
    const spec = {
      command,
      replicas: 0,
      mode: 'REPLICATED',
      priority: 50,
      rollout: { strategy: 'ROLLING_UPDATE' },
      volumes: [],
    };
    expect(
      await plainHttp.call(cluster.url, toRpcPath('PlanWorkload'), { name: 'new', spec }),
    ).toMatchObject({
      code: 'ok',
      items: [{ action: 'CREATE' }],
    });
  });

  it('is rejected with FAILED_PRECONDITION for an enrolment with a key or a token', async () => {
    const body = { nodeId: 'new', instanceId: '0123456789abcdef', csr: 'YWJj', token: 'cl1.a.b.c' };
    expect(
      await expectUnchanged(() => plainHttp.call(cluster.url, toRpcPath('EnrollNode'), body)),
    ).toEqual({
      code: 'failed_precondition',
      message:
        'csr, token: this cluster has no identities; enrol without csr and token, or start the coordinator with --tls on',
      items: [],
    });
  });
});

describe('invalid message', () => {
  /** Creates a workload over gRPC, and returns the error. */
  const createWithError = async (
    spec: Parameters<typeof cluster.client.createWorkload>[0]['spec'] & object,
  ): Promise<ConnectError> =>
    cluster.client.createWorkload({ name: 'new', spec }).then(
      () => Promise.reject(new Error('was accepted')),
      (reason: unknown) => ConnectError.from(reason),
    );

  it.each([
    {
      field: 'spec.rollout.strategy',
      values: 'ROLLING_UPDATE, RECREATE, BLUE_GREEN',
      spec: { command, rollout: { strategy: 99 as Rollout_Strategy } },
    },
    {
      field: 'spec.mode',
      values: 'REPLICATED, GLOBAL',
      spec: { command, mode: 99 as WorkloadSpec_Mode },
    },
  ])(
    'is rejected for an unknown number of the enum $field in binary',
    async ({ field, values, spec }) => {
      const error = await expectUnchanged(() => createWithError(spec));
      expect({ code: error.code, message: error.rawMessage }).toEqual({
        code: Code.InvalidArgument,
        message: `${field}: must be one of ${values}`,
      });
    },
  );

  it('is rejected with RESOURCE_EXHAUSTED for 5 MiB, in binary and in JSON', async () => {
    const annotations = Object.fromEntries(
      Array.from({ length: 80 }, (_, index) => [`k${index}`, randomBytes(32_768).toString('hex')]),
    );
    const error = await expectUnchanged(() => createWithError({ command, annotations }));
    expect(error.code).toBe(Code.ResourceExhausted);
    expect(error.rawMessage).toContain('4194304');
    const response = await postRaw(
      cluster.url,
      toRpcPath('CreateWorkload'),
      JSON.stringify({ name: 'new', spec: { command, annotations } }),
    );
    expect(response).toMatchObject({
      status: 429,
      json: { code: 'resource_exhausted', message: expect.stringContaining('4194304') as string },
    });
    expect(await readState()).not.toMatchObject({ workloads: [{ name: 'new' }] });
  });

  it('is rejected with INVALID_ARGUMENT for malformed protobuf', async () => {
    const truncated = Uint8Array.of(0x12, 0x7f, 0x61);
    expect(
      await postRaw(cluster.url, toRpcPath('CreateWorkload'), truncated, {
        'content-type': 'application/proto',
      }),
    ).toMatchObject({
      status: 400,
      json: {
        code: 'invalid_argument',
        message: expect.stringContaining(
          'not a valid cloudless.api.CreateWorkloadRequest in the binary format',
        ) as string,
      },
    });
  });

  it.each([
    {
      body: '{"name":',
      message: 'cannot decode message cloudless.api.CreateWorkloadRequest from JSON: ',
    },
    {
      body: '[]',
      message: 'cannot decode message cloudless.api.CreateWorkloadRequest from JSON: ',
    },
    {
      body: '{"name":7}',
      message: 'cannot decode field cloudless.api.CreateWorkloadRequest.name from JSON: ',
    },
  ])(
    'is rejected with INVALID_ARGUMENT for the malformed JSON $body',
    async ({ body, message }) => {
      const response = await expectUnchanged(() =>
        postRaw(cluster.url, toRpcPath('CreateWorkload'), body),
      );
      expect(response).toMatchObject({
        status: 400,
        json: { code: 'invalid_argument', message: expect.stringContaining(message) as string },
      });
    },
  );

  it('is rejected for an unknown path, a method other than POST and an unknown content type', async () => {
    expect(await postRaw(cluster.url, toRpcPath('NoSuchCall'), '{}')).toMatchObject({
      status: 404,
      json: { code: 'unimplemented' },
    });
    expect((await fetch(`${cluster.url}/${toRpcPath('CreateWorkload')}`)).status).toBe(405);
    expect(
      await postRaw(cluster.url, toRpcPath('CreateWorkload'), '{}', {
        'content-type': 'text/plain',
      }),
    ).toMatchObject({
      status: 415,
      json: { code: 'unimplemented' },
    });
  });
});

describe('web page of another site', () => {
  const servers = [
    { server: 'the API', url: () => cluster.url, path: toRpcPath('ListNodes') },
    { server: 'the port of an agent', url: () => agentUrl, path: `${AGENT}/ListContainers` },
  ];

  it.each(servers)(
    'cannot call $server through its own host name (DNS rebinding)',
    async ({ url, path }) => {
      const host = `evil.example:${new URL(url()).port}`;
      const message = `host "${host}" is not this machine; without TLS only localhost, 127.0.0.1 and [::1] are served`;
      const response = await postRaw(url(), path, '{}', { host });
      expect({ status: response.status, json: response.json }).toEqual({
        status: 403,
        json: { code: 'permission_denied', message },
      });
      expect(await requestStatus(url(), path, host)).toBe(403);
    },
  );

  it.each(servers)('cannot call $server from its own origin', async ({ url, path }) => {
    const message =
      'origin "https://evil.example" may not call this server; only pages served from this machine may';
    const response = await postRaw(url(), path, '{}', { origin: 'https://evil.example' });
    expect({ status: response.status, json: response.json }).toEqual({
      status: 403,
      json: { code: 'permission_denied', message },
    });
    expect((await postRaw(url(), path, '{}', { origin: 'http://localhost:3000' })).status).toBe(
      200,
    );
  });

  it('cannot read the ops port', async () => {
    for (const headers of [{ host: 'evil.example' }, { origin: 'https://evil.example' }]) {
      expect((await postRaw(cluster.opsUrl, 'metrics', '', headers)).status).toBe(403);
    }
  });

  /** Sends a POST over HTTP/2 with an authority, and returns the status. */
  async function requestStatus(url: string, path: string, authority: string): Promise<unknown> {
    const session = connect(url);
    try {
      const stream = session.request({
        ':method': 'POST',
        ':path': `/${path}`,
        ':authority': authority,
        'content-type': 'application/json',
      });
      stream.end('{}');
      return await new Promise((resolve, reject) => {
        stream.once('response', (headers) => resolve(headers[':status']));
        stream.once('error', reject);
      });
    } finally {
      session.destroy();
    }
  }
});

describe('program with invalid settings', () => {
  const path = (name: string): string => join(cluster.directory, name);
  /** Runs a coordinator with its required flags and the flags of the test until it exits. */
  const runCoordinator = (
    args: readonly string[],
    env: NodeJS.ProcessEnv = {},
  ): Promise<FinishedProgram> =>
    runToEnd(
      process.execPath,
      [
        findBundle('coordinator'),
        '--tls',
        'off',
        '--port',
        '0',
        '--ops-port',
        '0',
        '--data-dir',
        path('other'),
        ...args,
      ],
      { env },
    );
  /** Runs an agent with its required flags and the flags of the test until it exits. */
  const runAgent = (
    args: readonly string[],
    env: NodeJS.ProcessEnv = {},
  ): Promise<FinishedProgram> => {
    const requiredFlags = [
      '--name',
      'other',
      '--coordinator',
      cluster.url,
      '--data-dir',
      path('other-agent'),
      '--stop-workloads-on-exit',
      '--runtime',
      'process',
    ];
    return runToEnd(process.execPath, [findBundle('agent'), 'run', ...requiredFlags, ...args], {
      env,
    });
  };
  /** Listens on `port`, which is therefore in use. */
  let blocker: Server;
  let port = 0;

  beforeAll(async () => {
    blocker = createServer().listen(0, '127.0.0.1');
    await new Promise((resolve) => blocker.once('listening', resolve));
    port = (blocker.address() as AddressInfo).port;
    await mkdir(path('open'));
    await chmod(path('open'), 0o755);
    await writeFile(path('file'), '');
    await writeFile(path('settings.yaml'), 'prot: 1\n');
  });
  afterAll(async () => {
    await new Promise((resolve) => blocker.close(resolve));
  });

  const describePortInUse = (flag: string): string =>
    `port ${port} on 127.0.0.1 is in use; stop the program that uses it or choose another port with ${flag}`;
  const noLoopback = 'without TLS; use --tls on or listen on 127.0.0.1';

  it.each([
    {
      name: '--port in use',
      args: () => ['--port', String(port)],
      code: 1,
      message: () => describePortInUse('--port'),
    },
    {
      name: '--ops-port in use',
      args: () => ['--ops-port', String(port)],
      code: 1,
      message: () => describePortInUse('--ops-port'),
    },
    {
      name: 'a data directory in use',
      args: () => ['--data-dir', path('coordinator')],
      code: 1,
      message: () =>
        `data directory ${path('coordinator')} is in use by process ${cluster.coordinatorProcess.pid}; stop it first, or choose another directory`,
    },
    {
      name: 'a data directory that others can read',
      args: () => ['--data-dir', path('open')],
      code: 1,
      message: () =>
        `data directory ${path('open')} has mode 0755, so that other users can access it; run: chmod 700 '${path('open')}'`,
    },
    {
      name: 'a data directory that is a file',
      args: () => ['--data-dir', path('file')],
      code: 1,
      message: () =>
        `${path('file')} is not a directory; choose a directory for the data, or move this file away`,
    },
    {
      name: 'an address other than loopback',
      args: () => ['--host', '0.0.0.0'],
      code: 1,
      message: () => `refusing to listen on 0.0.0.0 ${noLoopback}`,
    },
    {
      name: 'an unknown flag',
      args: () => ['--prot', '1'],
      code: 2,
      message: () => "unknown option '--prot'",
    },
    {
      name: 'an unknown key',
      args: () => ['--config', path('settings.yaml')],
      code: 2,
      message: () =>
        `${path('settings.yaml')}: prot: is not a setting; the settings are tls, host, port, `,
    },
    {
      name: 'a missing settings file',
      args: () => ['--config', path('none.yaml')],
      code: 2,
      message: () => `cannot read the settings at ${path('none.yaml')}: ENOENT`,
    },
    {
      name: 'an invalid port',
      args: () => ['--port', '99999'],
      code: 2,
      message: () => '--port: "99999" must be a whole number from 0 to 65535',
    },
    {
      name: 'a lease below three pings',
      args: () => ['--lease', '1s', '--ping-interval', '900ms'],
      code: 2,
      message: () =>
        'a lease of 1000 ms is less than three times the ping interval of 900 ms: one lost packet would lose a node',
    },
    {
      name: 'weights that are all 0',
      args: () => ['--weights', '0,0,0,0,0'],
      code: 2,
      message: () => '--weights: "0,0,0,0,0" must be five numbers from 0, not all 0',
    },
  ])('makes the coordinator exit with $code for $name', async ({ args, code, message }) => {
    const result = await runCoordinator(args());
    expect(result.stderr).toContain(message());
    expect(result).toMatchObject({
      code,
      stderr: expect.not.stringContaining('    at ') as string,
    });
  });

  it('makes the coordinator exit with 2 for an invalid environment variable', async () => {
    expect(await runCoordinator([], { CLOUDLESS_COORDINATOR_LEASE: 'long' })).toMatchObject({
      code: 2,
      stderr: expect.stringContaining(
        'environment: CLOUDLESS_COORDINATOR_LEASE: "long" must be a duration',
      ) as string,
    });
  });

  it.each([
    {
      name: '--listen in use',
      args: () => ['--listen', `127.0.0.1:${port}`],
      code: 1,
      message: () => describePortInUse('--listen'),
    },
    {
      name: 'a data directory in use',
      args: () => ['--data-dir', path('agent-1')],
      code: 1,
      message: () =>
        `data directory ${path('agent-1')} is in use by another agent, process ${cluster.requireAgent('agent-1').pid}`,
    },
    {
      name: 'a data directory that others can read',
      args: () => ['--data-dir', path('open')],
      code: 1,
      message: () =>
        `data directory ${path('open')} can be read by other users: make it private (chmod 700 ${path('open')})`,
    },
    {
      name: 'a data directory that is a file',
      args: () => ['--data-dir', path('file')],
      code: 1,
      message: () => `${path('file')} is not a directory`,
    },
    {
      name: 'an address other than loopback',
      args: () => ['--listen', '0.0.0.0:0'],
      code: 2,
      message: () => 'listen: "0.0.0.0" is not a loopback address; without TLS only',
    },
    {
      name: 'a coordinator on another machine',
      args: () => ['--coordinator', 'http://10.0.0.1:8080'],
      code: 2,
      message: () =>
        '--coordinator: "http://10.0.0.1:8080" is not on this machine; without TLS only',
    },
    {
      name: 'an unknown flag',
      args: () => ['--nmae', 'a'],
      code: 2,
      message: () => "unknown option '--nmae'",
    },
    {
      name: 'an unknown key',
      args: () => ['--config', path('settings.yaml')],
      code: 2,
      message: () => `${path('settings.yaml')}: prot: is not a setting; the settings are name, `,
    },
    {
      name: 'a name that is not a DNS label',
      args: () => ['--name', 'Bad_Name'],
      code: 2,
      message: () => '--name: "Bad_Name" must be a DNS label',
    },
    {
      name: 'an invalid port range',
      args: () => ['--port-range', '9-1'],
      code: 2,
      message: () => '--port-range: "9-1" must be two ports in order, such as 20000-29999',
    },
  ])('makes the agent exit with $code for $name', async ({ args, code, message }) => {
    const result = await expectUnchanged(() => runAgent(args()));
    expect(result.stderr).toContain(message());
    expect(result).toMatchObject({
      code,
      stderr: expect.not.stringContaining('    at ') as string,
    });
  });

  it('leaves no process behind', () => {
    const leftovers = listProcessesUsing(path('other'));
    killAll(leftovers);
    expect(leftovers).toEqual([]);
  });
});

describe('unreachable coordinator', () => {
  it('makes cloudlessctl exit with 5, the address and the settings to check', async () => {
    const server = createServer().listen(0, '127.0.0.1');
    await new Promise((resolve) => server.once('listening', resolve));
    const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
    await new Promise((resolve) => server.close(resolve));
    expect(await cluster.runCtl('--server', url, 'get', 'workloads')).toEqual({
      code: 5,
      stdout: '',
      stderr:
        `cloudlessctl: cannot reach the coordinator at ${url}: connection refused. Is it running (npm start)? ` +
        `Check --server, CLOUDLESS_SERVER or a context in ${join(cluster.directory, 'no-config.yaml')}\n`,
    });
  });

  it('makes an agent log one warning and retry, until the coordinator starts', async () => {
    const connections = new Counter();
    const closingServer = createServer((socket) => {
      connections.add();
      socket.destroy();
    }).listen(0, '127.0.0.1');
    await new Promise((resolve) => closingServer.once('listening', resolve));
    const { port } = closingServer.address() as AddressInfo;
    const agent = startAgent('late', `http://127.0.0.1:${port}`);
    let coordinator: RunningProgram | undefined;
    try {
      await agent.waitForLog('agent started, connecting to coordinators');
      await connections.waitFor(6);
      const logged = agent.lines.filter((line) => line.includes('no session'));
      expect(logged.map((line) => JSON.parse(line) as unknown)).toMatchObject([
        {
          level: 'warn',
          message: 'no session; replicas keep running',
          coordinator: `http://127.0.0.1:${port}`,
        },
      ]);
      await new Promise((resolve) => closingServer.close(resolve));
      const args = [
        '--tls',
        'off',
        '--port',
        String(port),
        '--ops-port',
        '0',
        '--data-dir',
        join(cluster.directory, 'late-coordinator'),
      ];
      coordinator = RunningProgram.start(process.execPath, [findBundle('coordinator'), ...args]);
      await agent.waitForLog('session established');
    } finally {
      closingServer.close();
      await agent.kill('SIGTERM');
      await coordinator?.kill('SIGTERM');
    }
  });

  it('is reported once by an agent that the coordinator rejects because of its name', async () => {
    const agent = startAgent('agent-1', cluster.url, 'impostor', '--log-level', 'debug');
    try {
      const countTries = (): number =>
        agent.lines.filter((line) => line.includes('still no session')).length;
      await agent.waitForLine(() => countTries() >= 3);
      const logged = agent.lines.filter(
        (line) => line.includes('"no session') && !line.includes('"level":"debug"'),
      );
      expect(logged.map((line) => JSON.parse(line) as unknown)).toMatchObject([
        {
          level: 'error',
          message: 'no session: the coordinator rejects this agent',
          error:
            'node "agent-1" is enrolled by another machine; choose another name, or remove that node first',
        },
      ]);
      expect(await cluster.client.listNodes({})).toMatchObject({
        nodes: [{ id: 'agent-1', status: { phase: 1, replicaCount: 1 } }],
      });
    } finally {
      await agent.kill('SIGTERM');
    }
  });

  function startAgent(
    name: string,
    url: string,
    directory = name,
    ...more: readonly string[]
  ): RunningProgram {
    const flags = [
      '--data-dir',
      join(cluster.directory, directory),
      '--runtime',
      'process',
      '--stop-workloads-on-exit',
    ];
    const args = ['run', '--name', name, '--coordinator', url, ...flags, ...more];
    return RunningProgram.start(process.execPath, [findBundle('agent'), ...args]);
  }
});

/** A counter that tests can wait for. */
class Counter {
  private count = 0;
  private waiters: { readonly count: number; readonly resolve: () => void }[] = [];

  add(): void {
    this.count += 1;
    for (const { count, resolve } of this.waiters) if (this.count >= count) resolve();
  }

  /** Resolves when the counter has reached `count`. */
  waitFor(count: number): Promise<void> {
    return new Promise((resolve) => {
      this.waiters.push({ count, resolve });
      if (this.count >= count) resolve();
    });
  }
}
