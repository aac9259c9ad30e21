import { randomBytes } from 'node:crypto';
import { chmod, mkdir, writeFile } from 'node:fs/promises';
import { connect } from 'node:http2';
import { createServer, type AddressInfo, type Server } from 'node:net';
import { join } from 'node:path';
import { Code, ConnectError } from '@connectrpc/connect';
import {
  Event_Category as Category,
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
});
afterAll(() => cluster.stop());

const toRpcPath = (method: string): string => `${COORDINATOR}/${method}`;

/** Returns the state that a refused request must not change. */
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
    // The audit record of the attempt is the only change.
    events: events.filter(({ category }) => category !== Category.AUDIT).map(({ id }) => id),
  };
}

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
const REPLICAS = 'must be from 0 to 1000000';
const exec = (target: object, words: readonly string[] = ['true']) => ({
  method: `${AGENT}/ExecCommand`,
  body: { ...target, command: words },
});

describe('invalid request', () => {
  it.each([
    {
      what: 'an empty name',
      ...create('', { command }),
      code: 'invalid_argument',
      says: `name: must not be empty`,
    },
    {
      what: 'a name of 300 characters',
      ...create('a'.repeat(300), { command }),
      code: 'invalid_argument',
      says: 'name: must be at most 63 characters long',
    },
    {
      what: 'a name that is not a DNS label',
      ...create('Web_1', { command }),
      code: 'invalid_argument',
      says: `name: ${DNS_LABEL}`,
    },
    {
      what: 'no spec',
      method: toRpcPath('CreateWorkload'),
      body: { name: 'new' },
      code: 'invalid_argument',
      says: 'spec: is required',
    },
    {
      what: 'neither image nor command',
      ...create('new', {}),
      code: 'invalid_argument',
      says: 'spec: image or command is required: an image runs in a container, a command as a process',
    },
    {
      what: 'an image for the process runtime',
      ...create('new', { image: 'nginx:alpine', runtime: 'process' }),
      code: 'invalid_argument',
      says: 'spec.runtime: the process runtime runs commands, not images; remove runtime or image',
    },
    {
      what: 'an unknown runtime',
      ...create('new', { command, runtime: 'docker' }),
      code: 'invalid_argument',
      says: 'spec.runtime: must be process, cri or empty',
    },
    {
      what: 'an unknown name of an enum',
      ...create('new', { command, rollout: { strategy: 'ROLING_UPDATE' } }),
      code: 'invalid_argument',
      says: 'spec.rollout.strategy: "ROLING_UPDATE" is not one of ROLLING_UPDATE, RECREATE, BLUE_GREEN',
    },
    {
      what: 'exclusive replicas that are replaced before they have stopped',
      ...create('new', {
        command,
        disconnect: { mode: 'EXCLUSIVE', stopAfter: '10s', lostAfter: '15s' },
      }),
      code: 'invalid_argument',
      says: 'spec.disconnect.lost_after: 15000 ms is below twice stop_after (20000 ms): the old replica could still run when its replacement starts',
    },
    {
      what: 'an unknown field',
      ...create('new', { command, replicaz: 1 }),
      code: 'invalid_argument',
      says: 'cannot decode message cloudless.api.WorkloadSpec from JSON: key "replicaz" is unknown',
    },
    {
      what: 'negative replicas',
      ...create('new', { command, replicas: -1 }),
      code: 'invalid_argument',
      says: `spec.replicas: ${REPLICAS}`,
    },
    {
      what: 'a scale to a negative number',
      method: toRpcPath('ScaleWorkload'),
      body: { name: 'there', replicas: -1 },
      code: 'invalid_argument',
      says: `replicas: ${REPLICAS}`,
    },
    {
      what: 'two ports of one name',
      ...create('new', {
        command,
        ports: [
          { name: 'a', containerPort: 1 },
          { name: 'a', containerPort: 2 },
        ],
      }),
      code: 'invalid_argument',
      says: 'spec.ports[1].name: "a" is used twice',
    },
    {
      what: 'a rollout without a possible move',
      ...create('new', { command, replicas: 3, rollout: { maxSurge: 0, minAvailable: 3 } }),
      code: 'invalid_argument',
      says: 'spec.rollout: max_surge 0 and min_available 3 of 3 leave no possible move',
    },
    {
      what: 'an update to a rollout without a possible move',
      method: toRpcPath('UpdateWorkload'),
      body: { name: 'there', spec: { replicas: 3, rollout: { maxSurge: 0, minAvailable: 3 } } },
      code: 'invalid_argument',
      says: 'spec.rollout: max_surge 0 and min_available 3 of 3 leave no possible move',
    },
    {
      what: 'an invalid label selector',
      method: toRpcPath('ListWorkloads'),
      body: { labelSelector: 'app in' },
      code: 'invalid_argument',
      says: 'label_selector: cannot parse "app in"; expected key=value, key!=value, key, !key, key in (a,b) or key notin (a,b)',
    },
    {
      what: 'a page token of another server',
      method: toRpcPath('ListWorkloads'),
      body: { pageToken: 'xyz' },
      code: 'invalid_argument',
      says: 'page_token: is not a token of this server; pass next_page_token of the previous page unchanged',
    },
    {
      what: 'a name that exists',
      ...create('there', { command }),
      code: 'already_exists',
      says: 'workload "default/there" already exists; update it, or choose another name',
    },
    ...['GetWorkload', 'UpdateWorkload', 'DeleteWorkload', 'ListEndpoints', 'ExplainWorkload'].map(
      (method) => ({
        what: `${method} of an unknown name`,
        method: toRpcPath(method),
        body: { name: 'nothing', ...(method === 'UpdateWorkload' ? { spec: { command } } : {}) },
        code: 'not_found',
        says: 'workload "default/nothing" not found',
      }),
    ),
    {
      what: 'an unknown namespace',
      method: toRpcPath('ScaleWorkload'),
      body: { namespace: 'nowhere', name: 'there', replicas: 2 },
      code: 'not_found',
      says: 'workload "nowhere/there" not found',
    },
    {
      what: 'an unknown node',
      method: toRpcPath('CordonNode'),
      body: { nodeId: 'nothing' },
      code: 'not_found',
      says: 'node "nothing" not found',
    },
    {
      what: 'an unknown container',
      ...exec({ containerId: 'ab'.repeat(32) }),
      code: 'not_found',
      says: `container "${'ab'.repeat(32)}" not found`,
    },
    {
      what: 'a container id that is too short',
      ...exec({ containerId: 'abc' }),
      code: 'invalid_argument',
      says: 'container_id: must be 12 to 64 lower-case hex digits',
    },
    {
      what: 'an unknown replica',
      ...exec({ replicaId: '0123456789abcdef-1' }),
      code: 'not_found',
      says: 'replica "0123456789abcdef-1" not found',
    },
    {
      what: 'no target',
      ...exec({}),
      code: 'invalid_argument',
      says: 'container_id: container_id, replica_id, or the name of a workload is required',
    },
    {
      what: 'two targets',
      ...exec({ containerId: 'ab'.repeat(32), name: 'there' }),
      code: 'invalid_argument',
      says: 'name: cannot be combined with container_id',
    },
    {
      what: 'an empty command',
      ...exec({ name: 'there' }, []),
      code: 'invalid_argument',
      says: 'command: must not be empty',
    },
    {
      what: 'an enrolment with the node name of another machine',
      method: toRpcPath('EnrollNode'),
      body: { nodeId: 'agent-1', instanceId: '0123456789abcdef' },
      code: 'already_exists',
      says: 'node "agent-1" is enrolled by another machine; choose another name, or remove that node first',
    },
    {
      what: 'the removal of a connected node',
      method: toRpcPath('RemoveNode'),
      body: { nodeId: 'agent-1', force: true },
      code: 'failed_precondition',
      says: 'node "agent-1" is connected; stop its agent first, or it would enrol again at once',
    },
  ])('is rejected with $code for $what', async ({ method, body, code, says }) => {
    expect(await expectUnchanged(() => plainHttp.call(cluster.url, method, body))).toEqual({
      code,
      message: says,
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
    { field: 'image_pull.secret', spec: { image: 'nginx', imagePull: { secret: 'key' } } },
    {
      field: 'disconnect.mode (EXCLUSIVE with an image)',
      spec: { image: 'nginx', disconnect: { mode: 'EXCLUSIVE' } },
    },
    { field: 'secrets', spec: { secrets: [{ name: 'key' }] } },
    { field: 'priority (above 100, preemption)', spec: { priority: 500 } },
    { field: 'resources.requests.gpus', spec: { resources: { requests: { gpus: 1 } } } },
  ])(
    'is rejected with UNIMPLEMENTED for the unsupported field $field, by create and by update',
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
    'is rejected with INVALID_ARGUMENT for the container field $field of a process, by create and by update',
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

  it('is accepted when a container field of a process has its default value', async () => {
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

  it('is rejected with UNIMPLEMENTED for an enrolment with a key or a token', async () => {
    const body = { nodeId: 'new', instanceId: '0123456789abcdef', csr: 'YWJj', token: 'cl1.a.b.c' };
    expect(
      await expectUnchanged(() => plainHttp.call(cluster.url, toRpcPath('EnrollNode'), body)),
    ).toEqual({
      code: 'unimplemented',
      message: 'csr, token: this cluster has no identities; enrol without csr and token',
      items: [],
    });
  });
});

describe('invalid message', () => {
  const encodeSpec = async (
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
      const error = await expectUnchanged(() => encodeSpec(spec));
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
    const error = await expectUnchanged(() => encodeSpec({ command, annotations }));
    expect(error.code).toBe(Code.ResourceExhausted);
    expect(error.rawMessage).toContain('4194304');
    const answer = await postRaw(
      cluster.url,
      toRpcPath('CreateWorkload'),
      JSON.stringify({ name: 'new', spec: { command, annotations } }),
    );
    expect(answer).toMatchObject({
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
      says: 'cannot decode message cloudless.api.CreateWorkloadRequest from JSON: ',
    },
    { body: '[]', says: 'cannot decode message cloudless.api.CreateWorkloadRequest from JSON: ' },
    {
      body: '{"name":7}',
      says: 'cannot decode field cloudless.api.CreateWorkloadRequest.name from JSON: ',
    },
  ])('is rejected with INVALID_ARGUMENT for the malformed JSON $body', async ({ body, says }) => {
    const answer = await expectUnchanged(() =>
      postRaw(cluster.url, toRpcPath('CreateWorkload'), body),
    );
    expect(answer).toMatchObject({
      status: 400,
      json: { code: 'invalid_argument', message: expect.stringContaining(says) as string },
    });
  });

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
  const places = [
    { place: 'the API', url: () => cluster.url, path: toRpcPath('ListNodes') },
    { place: 'the port of an agent', url: () => agentUrl, path: `${AGENT}/ListContainers` },
  ];

  it.each(places)(
    'cannot call $place through its own host name (DNS rebinding)',
    async ({ url, path }) => {
      const host = `evil.example:${new URL(url()).port}`;
      const message = `host "${host}" is not this machine; without TLS only localhost, 127.0.0.1 and [::1] are served`;
      const answer = await postRaw(url(), path, '{}', { host });
      expect({ status: answer.status, json: answer.json }).toEqual({
        status: 403,
        json: { code: 'permission_denied', message },
      });
      expect(await requestStatus(url(), path, host)).toBe(403);
    },
  );

  it.each(places)('cannot call $place from its own origin', async ({ url, path }) => {
    const message =
      'origin "https://evil.example" may not call this server; only pages served from this machine may';
    const answer = await postRaw(url(), path, '{}', { origin: 'https://evil.example' });
    expect({ status: answer.status, json: answer.json }).toEqual({
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

describe('start of a program', () => {
  const path = (name: string): string => join(cluster.directory, name);
  /** Starts a program with its required flags and the flags of the test. */
  const runCoordinator = (
    args: readonly string[],
    env: NodeJS.ProcessEnv = {},
  ): Promise<FinishedProgram> =>
    runToEnd(
      process.execPath,
      [
        findBundle('coordinator'),
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
  const runAgent = (
    args: readonly string[],
    env: NodeJS.ProcessEnv = {},
  ): Promise<FinishedProgram> => {
    const needed = [
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
    return runToEnd(process.execPath, [findBundle('agent'), ...needed, ...args], { env });
  };
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
  const noLoopback =
    'without TLS; identities are not available in this version, so only 127.0.0.1, ::1 or localhost are accepted';

  it.each([
    {
      what: '--port in use',
      args: () => ['--port', String(port)],
      code: 1,
      says: () => describePortInUse('--port'),
    },
    {
      what: '--ops-port in use',
      args: () => ['--ops-port', String(port)],
      code: 1,
      says: () => describePortInUse('--ops-port'),
    },
    {
      what: 'a data directory in use',
      args: () => ['--data-dir', path('coordinator')],
      code: 1,
      says: () =>
        `data directory ${path('coordinator')} is in use by process ${cluster.coordinatorProcess.pid}; stop it first, or choose another directory`,
    },
    {
      what: 'a data directory that others can read',
      args: () => ['--data-dir', path('open')],
      code: 1,
      says: () =>
        `data directory ${path('open')} has mode 0755, so that other users can access it; run: chmod 700 '${path('open')}'`,
    },
    {
      what: 'a data directory that is a file',
      args: () => ['--data-dir', path('file')],
      code: 1,
      says: () =>
        `${path('file')} is not a directory; choose a directory for the data, or move this file away`,
    },
    {
      what: 'an address other than loopback',
      args: () => ['--host', '0.0.0.0'],
      code: 1,
      says: () => `refusing to listen on 0.0.0.0 ${noLoopback}`,
    },
    {
      what: 'an unknown flag',
      args: () => ['--prot', '1'],
      code: 2,
      says: () => "unknown option '--prot'",
    },
    {
      what: 'an unknown key',
      args: () => ['--config', path('settings.yaml')],
      code: 2,
      says: () => `${path('settings.yaml')}: prot: is not a setting; the settings are host, port, `,
    },
    {
      what: 'a missing settings file',
      args: () => ['--config', path('none.yaml')],
      code: 2,
      says: () => `cannot read the settings at ${path('none.yaml')}: ENOENT`,
    },
    {
      what: 'an invalid port',
      args: () => ['--port', '99999'],
      code: 2,
      says: () => '--port: "99999" must be a whole number from 0 to 65535',
    },
    {
      what: 'a lease below three pings',
      args: () => ['--lease', '1s', '--ping-interval', '900ms'],
      code: 2,
      says: () =>
        'a lease of 1000 ms is less than three times the ping interval of 900 ms: one lost packet would lose a node',
    },
    {
      what: 'weights that are all 0',
      args: () => ['--weights', '0,0,0,0,0'],
      code: 2,
      says: () => '--weights: "0,0,0,0,0" must be five numbers from 0, not all 0',
    },
  ])('the coordinator exits with $code for $what', async ({ args, code, says }) => {
    const ended = await runCoordinator(args());
    expect(ended.stderr).toContain(says());
    expect(ended).toMatchObject({ code, stderr: expect.not.stringContaining('    at ') as string });
  });

  it('the coordinator exits for an invalid environment variable', async () => {
    expect(await runCoordinator([], { CLOUDLESS_COORDINATOR_LEASE: 'long' })).toMatchObject({
      code: 2,
      stderr: expect.stringContaining(
        'environment: CLOUDLESS_COORDINATOR_LEASE: "long" must be a duration',
      ) as string,
    });
  });

  it.each([
    {
      what: '--listen in use',
      args: () => ['--listen', `127.0.0.1:${port}`],
      code: 1,
      says: () => describePortInUse('--listen'),
    },
    {
      what: 'a data directory in use',
      args: () => ['--data-dir', path('agent-1')],
      code: 1,
      says: () =>
        `data directory ${path('agent-1')} is in use by another agent, process ${cluster.requireAgent('agent-1').pid}`,
    },
    {
      what: 'a data directory that others can read',
      args: () => ['--data-dir', path('open')],
      code: 1,
      says: () =>
        `data directory ${path('open')} can be read by other users: make it private (chmod 700 ${path('open')})`,
    },
    {
      what: 'a data directory that is a file',
      args: () => ['--data-dir', path('file')],
      code: 1,
      says: () => `${path('file')} is not a directory`,
    },
    {
      what: 'an address other than loopback',
      args: () => ['--listen', '0.0.0.0:0'],
      code: 2,
      says: () => '--listen: "0.0.0.0" is not a loopback address; without TLS only',
    },
    {
      what: 'a coordinator on another machine',
      args: () => ['--coordinator', 'http://10.0.0.1:8080'],
      code: 2,
      says: () => '--coordinator: "http://10.0.0.1:8080" is not on this machine; without TLS only',
    },
    {
      what: 'an unknown flag',
      args: () => ['--nmae', 'a'],
      code: 2,
      says: () => "unknown option '--nmae'",
    },
    {
      what: 'an unknown key',
      args: () => ['--config', path('settings.yaml')],
      code: 2,
      says: () => `${path('settings.yaml')}: prot: is not a setting; the settings are name, `,
    },
    {
      what: 'a name that is not a DNS label',
      args: () => ['--name', 'Bad_Name'],
      code: 2,
      says: () => '--name: "Bad_Name" must be a DNS label',
    },
    {
      what: 'an invalid port range',
      args: () => ['--port-range', '9-1'],
      code: 2,
      says: () => '--port-range: "9-1" must be two ports in order, such as 20000-29999',
    },
  ])('the agent exits with $code for $what', async ({ args, code, says }) => {
    const ended = await expectUnchanged(() => runAgent(args()));
    expect(ended.stderr).toContain(says());
    expect(ended).toMatchObject({ code, stderr: expect.not.stringContaining('    at ') as string });
  });

  it('no failed start leaves a process behind', () => {
    const left = listProcessesUsing(path('other'));
    killAll(left);
    expect(left).toEqual([]);
  });
});

describe('unreachable coordinator', () => {
  it('cloudlessctl exits with 5, and names the address and what to check', async () => {
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

  it('an agent logs one warning, keeps trying, and joins when the coordinator starts', async () => {
    const dials = new Counter();
    const dead = createServer((socket) => {
      dials.add();
      socket.destroy();
    }).listen(0, '127.0.0.1');
    await new Promise((resolve) => dead.once('listening', resolve));
    const { port } = dead.address() as AddressInfo;
    const agent = startAgent('late', `http://127.0.0.1:${port}`);
    let coordinator: RunningProgram | undefined;
    try {
      await agent.waitForLog('agent started, connecting to coordinators');
      await dials.waitFor(6);
      const said = agent.lines.filter((line) => line.includes('no session'));
      expect(said.map((line) => JSON.parse(line) as unknown)).toMatchObject([
        {
          level: 'warn',
          message: 'no session; replicas keep running',
          coordinator: `http://127.0.0.1:${port}`,
        },
      ]);
      await new Promise((resolve) => dead.close(resolve));
      const args = [
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
      dead.close();
      await agent.kill('SIGTERM');
      await coordinator?.kill('SIGTERM');
    }
  });

  it('an agent with the name of another machine logs one warning and gets no node', async () => {
    const agent = startAgent('agent-1', cluster.url, 'impostor', '--log-level', 'debug');
    try {
      const countTries = (): number =>
        agent.lines.filter((line) => line.includes('still no session')).length;
      await agent.waitForLine(() => countTries() >= 3);
      const said = agent.lines.filter(
        (line) => line.includes('"no session') && !line.includes('"level":"debug"'),
      );
      expect(said.map((line) => JSON.parse(line) as unknown)).toMatchObject([
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
    const place = [
      '--data-dir',
      join(cluster.directory, directory),
      '--runtime',
      'process',
      '--stop-workloads-on-exit',
    ];
    const args = ['--name', name, '--coordinator', url, ...place, ...more];
    return RunningProgram.start(process.execPath, [findBundle('agent'), ...args]);
  }
});

/** A counter that tests can wait for. */
class Counter {
  private count = 0;
  private waiting: { readonly wanted: number; readonly resolve: () => void }[] = [];

  add(): void {
    this.count += 1;
    for (const { wanted, resolve } of this.waiting) if (this.count >= wanted) resolve();
  }

  waitFor(wanted: number): Promise<void> {
    return new Promise((resolve) => {
      this.waiting.push({ wanted, resolve });
      if (this.count >= wanted) resolve();
    });
  }
}
