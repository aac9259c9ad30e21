import { create, type MessageInitShape } from '@bufbuild/protobuf';
import { durationFromMs, timestampFromMs } from '@bufbuild/protobuf/wkt';
import { Code, ConnectError } from '@connectrpc/connect';
import fc from 'fast-check';
import {
  ContainerUseSchema,
  type ContainerUse,
  type ListContainerStatsRequest,
} from '@cloudless/api';
import { NOW_MS, aNode, runCli } from '../../testing/run-cli.js';
import type { CliOptions } from '../../testing/run-cli.js';
import { sortByUsage, sumByWorkload } from '../../views/usage-view.js';

/** Creates the measured usage of a container. */
const aUse = (init: MessageInitShape<typeof ContainerUseSchema> = {}): ContainerUse =>
  create(ContainerUseSchema, {
    namespace: 'default',
    workload: 'web',
    replicaId: '00000000000000aa-1',
    containerId: 'c'.repeat(64),
    nodeId: 'node1',
    sampledAt: timestampFromMs(NOW_MS - 4_000),
    interval: durationFromMs(10_000),
    cpuMillis: 180n,
    memoryWorkingSetBytes: 3n << 20n,
    ioReadBytesPerSecond: 1_024,
    ioWriteBytesPerSecond: 0.4,
    pidsCurrent: 4n,
    cpuRequestMillis: 100n,
    cpuLimitMillis: 200n,
    memoryRequestBytes: 1n << 26n,
    ...init,
  });
/** Creates the usage of a container that was not measured yet. */
const aNewUse = (init: MessageInitShape<typeof ContainerUseSchema> = {}): ContainerUse =>
  create(ContainerUseSchema, {
    namespace: 'default',
    workload: 'web',
    replicaId: '00000000000000aa-3',
    nodeId: 'node3',
    cpuRequestMillis: 100n,
    cpuLimitMillis: 200n,
    memoryRequestBytes: 1n << 26n,
    ...init,
  });
const uses = [
  aUse(),
  aUse({ replicaId: '00000000000000aa-2', nodeId: 'node2', cpuMillis: 190n }),
  aUse({
    workload: 'db',
    replicaId: '00000000000000bb-1',
    cpuMillis: 20n,
    networkSentBytesPerSecond: 2_048,
    memoryLimitBytes: 1n << 27n,
  }),
];
const createAgents = (...containers: readonly ContainerUse[]): CliOptions => ({
  agents: { listContainerStats: () => ({ containers: [...containers] }) },
});

describe('cloudlessctl top', () => {
  it('lists replicas by usage, highest first, with requests and limits', async () => {
    expect(await runCli(['top', 'replica'], createAgents(...uses))).toMatchObject({
      exitCode: 0,
      stderr: '',
      stdout: `NAMESPACE   WORKLOAD   REPLICA              NODE    CPU    REQUEST/LIMIT   MEMORY   REQUEST/LIMIT   PIDS
default     web        00000000000000aa-2   node2   190m   100m/200m       3Mi      64Mi/-          4
default     web        00000000000000aa-1   node1   180m   100m/200m       3Mi      64Mi/-          4
default     db         00000000000000bb-1   node1   20m    100m/200m       3Mi      64Mi/128Mi      4
`,
    });
  });

  it('shows rates, throttling and sample age of replicas with -o wide', async () => {
    const { stdout } = await runCli(
      ['top', 'replica', '-o', 'wide'],
      createAgents(aUse({ throttledPeriodsRatio: 0.456 })),
    );
    expect(stdout).toMatch(/PIDS +READ +WRITTEN +RECEIVED +SENT +THROTTLED +MEASURED +CONTAINER\n/);
    expect(stdout).toMatch(/ 4 +1Ki\/s +0\/s +- +- +46% +4s ago +cccccccccccc\n/);
  });

  it.each([
    ['top', 'workload'],
    ['top', 'wl'],
    ['workload', 'top'],
  ])('sums the replicas of each workload with %s %s', async (...argv) => {
    expect(await runCli([...argv, '-o', 'wide'], createAgents(...uses, aNewUse()))).toMatchObject({
      exitCode: 0,
      stderr:
        '1 container without CPU usage: the first measurement takes some seconds; try again\n',
      stdout: `NAMESPACE   NAME   REPLICAS   CPU    REQUEST/LIMIT   MEMORY   REQUEST/LIMIT   PIDS   READ    WRITTEN   RECEIVED   SENT
default     web    2/3        370m   300m/600m       6Mi      192Mi/-         8      2Ki/s   1/s       -          -
default     db     1/1        20m    100m/200m       3Mi      64Mi/128Mi      4      1Ki/s   0/s       -          2Ki/s
`,
    });
  });

  it('omits the limit of a workload when one replica has no limit, and the CPU usage when none is measured', () => {
    const [sum] = sumByWorkload([aUse({ memoryLimitBytes: 5n }), aUse()]);
    expect(sum).not.toHaveProperty('memoryLimitBytes');
    expect(sum).toMatchObject({ cpuLimitMillis: 400, measuredReplicas: 2 });
    expect(sumByWorkload([aNewUse()])[0]).not.toHaveProperty('cpuMillis');
  });

  it.each([
    ['top', 'node'],
    ['top', 'nodes'],
    ['node', 'top'],
  ])('lists nodes by usage, highest first, with %s %s', async (...argv) => {
    const status = {
      usage: { cpuMillis: 600, memoryBytes: 2n << 30n },
      capacity: { cpuMillis: 2_000, memoryBytes: 8n << 30n },
      allocated: { cpuMillis: 500, memoryBytes: 1n << 30n },
      replicaCount: 3,
    };
    const busy = { ...status, usage: { cpuMillis: 1_500, memoryBytes: 1n << 30n } };
    const unknown = { ...status, usage: undefined };
    const nodes = [
      aNode({ id: 'a', status }),
      aNode({ id: 'b', status: unknown }),
      aNode({ id: 'c', status: busy }),
    ];
    expect(await runCli(argv, { coordinator: { listNodes: () => ({ nodes }) } })).toMatchObject({
      exitCode: 0,
      stderr: '',
      stdout: `NAME   CPU     CPU%   RESERVED     MEMORY   MEMORY%   RESERVED   REPLICAS
c      1500m   75%    500m/1500m   1Gi      13%       1Gi/7Gi    3
a      600m    30%    500m/1500m   2Gi      25%       1Gi/7Gi    3
b      -       -      500m/1500m   -        -         1Gi/7Gi    3
`,
    });
    const one = await runCli([...argv, 'a'], {
      coordinator: { getNode: ({ nodeId }) => aNode({ id: nodeId, status }) },
    });
    expect(one.stdout).toMatch(/\na +600m/);
  });

  it.each([
    { argv: ['replica'], filter: { namespace: 'default', name: '', nodeId: '' } },
    { argv: ['replica', '-A'], filter: { namespace: '', name: '', nodeId: '' } },
    {
      argv: ['workload', 'web', '-n', 'prod'],
      filter: { namespace: 'prod', name: 'web', nodeId: '' },
    },
    {
      argv: ['replica', 'prod/web', '--node', 'n1'],
      filter: { namespace: 'prod', name: 'web', nodeId: 'n1' },
    },
  ])('sends the filter $filter with the arguments $argv', async ({ argv, filter }) => {
    const requests: ListContainerStatsRequest[] = [];
    await runCli(['top', ...argv], {
      agents: { listContainerStats: (request) => (requests.push(request), {}) },
    });
    expect(requests).toMatchObject([filter]);
  });

  it('reads all pages, and reports each node that did not answer only once', async () => {
    const silentNodes = [{ nodeId: 'node9', reason: 'node "node9" is not connected' }];
    const listContainerStats = ({ pageToken }: ListContainerStatsRequest) =>
      pageToken === ''
        ? { containers: [aUse()], silentNodes, nextPageToken: 'p2' }
        : { containers: [uses[1]!], silentNodes };
    const { stdout, stderr, exitCode } = await runCli(['top', 'replica'], {
      agents: { listContainerStats },
    });
    expect(stdout.split('\n')).toHaveLength(4);
    expect(stderr).toBe(
      'node node9 did not answer, so its containers are not shown: node "node9" is not connected\n',
    );
    expect(exitCode).toBe(0);
  });

  it('prints unformatted figures with -o json and -o yaml', async () => {
    const silentNodes = [{ nodeId: 'node9', reason: 'away' }];
    const agents = { listContainerStats: () => ({ containers: uses, silentNodes }) };
    const replicas = JSON.parse(
      (await runCli(['top', 'replica', '-o', 'json'], { agents })).stdout,
    ) as unknown;
    expect(replicas).toMatchObject({
      containers: [{ cpuMillis: '190' }, { cpuMillis: '180' }, { cpuMillis: '20' }],
      silentNodes,
    });
    const workloads = JSON.parse(
      (await runCli(['top', 'workload', '-o', 'json'], { agents })).stdout,
    ) as unknown;
    expect(workloads).toMatchObject({
      workloads: [
        {
          name: 'web',
          replicas: 2,
          measuredReplicas: 2,
          cpuMillis: 370,
          cpuLimitMillis: 400,
          memoryWorkingSetBytes: 6 << 20,
        },
        { name: 'db', memoryLimitBytes: 1 << 27 },
      ],
      silentNodes,
    });
    expect((await runCli(['top', 'workload', '-o', 'yaml'], { agents })).stdout).toContain(
      'cpuMillis: 370',
    );
    const coordinator = { listNodes: () => ({ nodes: [aNode({ id: 'a' })] }) };
    expect(
      JSON.parse((await runCli(['top', 'node', '-o', 'json'], { coordinator })).stdout),
    ).toMatchObject({
      nodes: [{ id: 'a' }],
    });
  });

  it.each([
    { argv: ['replica'], says: 'no running containers' },
    { argv: ['workload', 'web'], says: 'no running containers of workload web' },
  ])('prints "$says" with the arguments $argv when nothing runs', async ({ argv, says }) => {
    expect(await runCli(['top', ...argv], createAgents())).toMatchObject({
      exitCode: 0,
      stdout: '',
      stderr: `${says}\n`,
    });
  });

  it('exits with 3 for an unknown workload', async () => {
    const agents: CliOptions['agents'] = {
      listContainerStats: () =>
        Promise.reject(new ConnectError('workload "default/none" not found', Code.NotFound)),
    };
    expect(await runCli(['top', 'workload', 'none'], { agents })).toMatchObject({
      exitCode: 3,
      stderr: expect.stringContaining('workload "default/none" not found') as string,
    });
  });

  it('lists its subcommands with --help', async () => {
    expect((await runCli(['top', '--help'])).stdout).toMatch(/node[^]*workload[^]*replica/);
  });
});

describe('sortByUsage', () => {
  it('returns the same order for every input order, highest CPU usage first and unknown usage last', () => {
    const arbitraryUsage = fc.record({
      name: fc.string({ maxLength: 3 }),
      cpuMillis: fc.option(fc.nat(3), { nil: undefined }),
      memoryBytes: fc.option(fc.bigInt(0n, 3n), { nil: undefined }),
    });
    fc.assert(
      fc.property(fc.uniqueArray(arbitraryUsage, { selector: ({ name }) => name }), (keys) => {
        const sorted = sortByUsage(keys, (key) => key);
        expect(sortByUsage([...keys].reverse(), (key) => key)).toEqual(sorted);
        const rank = sorted.map(({ cpuMillis = -1 }) => cpuMillis);
        expect(rank).toEqual([...rank].sort((a, b) => b - a));
      }),
    );
  });
});
