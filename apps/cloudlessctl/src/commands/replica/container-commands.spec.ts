import { create, type MessageInitShape } from '@bufbuild/protobuf';
import { timestampFromMs } from '@bufbuild/protobuf/wkt';
import { ContainerStatus_State as State, ContainerStatusSchema } from '@cloudless/api';
import { NOW_MS, aWorkload, runCli } from '../../testing/run-cli.js';

const aContainer = (fields: MessageInitShape<typeof ContainerStatusSchema>) =>
  create(ContainerStatusSchema, {
    namespace: 'default',
    workload: 'web',
    nodeId: 'agent-1',
    replicaId: 'w-1',
    state: State.RUNNING,
    startedAt: timestampFromMs(NOW_MS - 60_000),
    ...fields,
  });
const web = aContainer({
  containerId: 'ab'.repeat(32),
  image: 'nginx:alpine',
  pid: 4_711,
  runtime: 'cri',
  runtimeId: 'cd'.repeat(32),
  imageDigest: `docker.io/library/nginx@sha256:${'ef'.repeat(32)}`,
  endpoints: [{ portName: 'http', ip: '10.0.0.7', port: 80 }],
});
const job = aContainer({
  containerId: '12'.repeat(32),
  workload: 'job',
  replicaId: 'j-1',
  nodeId: 'agent-2',
  runtime: 'process',
  state: State.EXITED,
  exitCode: 3,
  command: ['/bin/sh', '-c', 'while true; do date; sleep 1; done'],
});
const other = aContainer({ containerId: '34'.repeat(32), namespace: 'team', replicaId: 'x-9' });
const agents = { listContainers: () => ({ containers: [web, job, other] }) };
const get = (...argv: readonly string[]) => runCli(['get', 'containers', ...argv], { agents });

describe('cloudlessctl get containers', () => {
  it('lists the containers of the namespace with replica and node', async () => {
    const { stdout } = await get();
    const rows = stdout
      .trimEnd()
      .split('\n')
      .map((line) => line.trim().split(/ {2,}/));
    expect(rows).toEqual([
      ['CONTAINER', 'IMAGE', 'COMMAND', 'REPLICA', 'NODE', 'STATE', 'AGE', 'ADDRESSES'],
      [
        'abababababab',
        'nginx:alpine',
        '(of the image)',
        'w-1',
        'agent-1',
        'running',
        '60s',
        'http=10.0.0.7:80',
      ],
      [
        '121212121212',
        '(process)',
        '/bin/sh -c while true; do dat…',
        'j-1',
        'agent-2',
        'exited (3)',
        '60s',
        '-',
      ],
    ]);
  });

  it('shows runtime, runtime id and image digest with -o wide', async () => {
    const { stdout } = await get('-o', 'wide');
    expect(stdout).toMatch(/NAMESPACE +WORKLOAD +PID +RUNTIME +RUNTIME ID +DIGEST/);
    expect(stdout).toMatch(/default +web +4711 +cri +cdcdcdcdcdcd +efefefefefef/);
  });

  it('prints all fields with -o json', async () => {
    const { containers } = JSON.parse((await get('-o', 'json')).stdout) as {
      containers: readonly object[];
    };
    expect(containers).toMatchObject([
      {
        containerId: web.containerId,
        runtimeId: web.runtimeId,
        imageDigest: web.imageDigest,
        pid: 4_711,
      },
      { containerId: job.containerId, state: 'EXITED', exitCode: 3 },
    ]);
  });

  it.each([
    { argv: ['-A'], shows: ['w-1', 'j-1', 'x-9'] },
    { argv: ['--node', 'agent-2'], shows: ['j-1'] },
    { argv: ['--workload', 'web'], shows: ['w-1'] },
    { argv: ['--workload', 'team/web'], shows: ['x-9'] },
    { argv: ['-n', 'team'], shows: ['x-9'] },
    { argv: ['3434'], shows: ['x-9'] },
  ])(
    'lists the containers of the replicas $shows with the arguments $argv',
    async ({ argv, shows }) => {
      const { stdout } = await get(...argv);
      expect(['w-1', 'j-1', 'x-9'].filter((id) => stdout.includes(id))).toEqual(shows);
    },
  );

  it('rejects an id prefix that matches several containers', async () => {
    const twins = [aContainer({ containerId: 'abc1' }), aContainer({ containerId: 'abc2' })];
    const result = await runCli(['get', 'containers', 'abc'], {
      agents: { listContainers: () => ({ containers: twins }) },
    });
    expect(result).toMatchObject({
      exitCode: 2,
      stderr:
        'cloudlessctl: several containers have an id that begins with "abc"; give more digits\n',
    });
  });

  it('reports an empty list on stderr', async () => {
    expect(await get('-n', 'empty')).toMatchObject({ stdout: '', stderr: 'no containers\n' });
  });

  it('rejects an id prefix that matches no container', async () => {
    expect(await get('ffff')).toMatchObject({
      exitCode: 2,
      stderr: expect.stringContaining('"ffff"') as string,
    });
  });
});

describe('cloudlessctl describe', () => {
  it('shows the runtime id of a container and the digest of its image', async () => {
    const { runtimeId, imageDigest, pid } = web;
    const replicas = [{ id: 'w-1', container: { runtimeId, imageDigest, pid } }];
    const coordinator = {
      getWorkload: () => aWorkload({ status: { replicas } }),
      listEvents: () => ({}),
    };
    const { stdout } = await runCli(['describe', 'web'], { coordinator });
    expect(stdout).toContain(`w-1: pid 4711, runtime id ${runtimeId}, image ${imageDigest}\n`);
  });
});
