import { readFile } from 'node:fs/promises';
import { Code, ConnectError } from '@connectrpc/connect';
import { create } from '@bufbuild/protobuf';
import { EventSchema, Taint_Effect, WorkloadStatus_Phase } from '@cloudless/api';
import type {
  CreateWorkloadRequest,
  ExecCommandRequest,
  ScaleWorkloadRequest,
  UpdateNodeRequest,
  UpdateWorkloadRequest,
} from '@cloudless/api';
import { timestampFromMs } from '@bufbuild/protobuf/wkt';
import { VERSION } from './version.js';
import { NOW_MS, aNode, aWorkload, runCli } from './testing/run-cli.js';

const withoutReplicas = { status: { totalReplicas: 0 } };

describe('cloudlessctl', () => {
  it.each([
    {
      argv: ['workloads'],
      message: "cloudlessctl: unknown command 'workloads'\n(Did you mean workload?)",
    },
    {
      argv: ['workload', 'crate'],
      message: "cloudlessctl: unknown command 'crate'\n(Did you mean create?)",
    },
    {
      argv: ['get', 'workloads', '--namespce', 'x'],
      message: "cloudlessctl: unknown option '--namespce'\n(Did you mean --namespace?)",
    },
    { argv: ['scale', 'web'], message: "cloudlessctl: missing required argument 'replicas'" },
    {
      argv: ['version', 'extra'],
      message: "cloudlessctl: too many arguments for 'version'. Expected 0 arguments but got 1.",
    },
    {
      argv: ['scale', 'web', 'many'],
      message: 'cloudlessctl: the number of replicas: expected a whole number, got "many"',
    },
    {
      argv: ['scale', 'web', '--', '-1'],
      message: 'cloudlessctl: the number of replicas is missing: only a command may follow --',
    },
    {
      argv: ['get', 'workloads', 'a', 'b', '-w'],
      message: 'cloudlessctl: --watch takes at most one workload, got 2',
    },
    {
      argv: ['get', 'nodes', 'a', 'b', '-w'],
      message: 'cloudlessctl: --watch takes at most one node, got 2',
    },
    {
      argv: ['get', 'events', '-l', 'a=b'],
      message: 'cloudlessctl: --selector applies to workloads and nodes, not to events',
    },
    {
      argv: ['get', 'nodes', '-A'],
      message:
        'cloudlessctl: --all-namespaces applies to workloads, events and containers, not to nodes',
    },
    {
      argv: ['get', 'pods'],
      message: 'cloudlessctl: unknown kind "pods": expected workloads, nodes, containers or events',
    },
    {
      argv: ['get', 'nods'],
      message:
        'cloudlessctl: unknown kind "nods": expected workloads, nodes, containers or events; did you mean node?',
    },
    {
      argv: ['describe', 'Web!'],
      message:
        'cloudlessctl: "Web!" is not a valid workload name: expected [namespace/]name, each up to 63 lower-case letters, digits and inner hyphens',
    },
    {
      argv: ['get', 'workloads', '-o', 'jsn'],
      message:
        'cloudlessctl: --output: expected one of table, wide, json, yaml, got "jsn"; did you mean json?',
    },
    {
      argv: ['get', 'nodes', '--timeout', '5'],
      message:
        'cloudlessctl: --timeout: expected a duration such as "500ms", "2s" or "1h30m", got "5"; write "5s" for seconds',
    },
    {
      argv: ['get', 'nodes', '--server', 'localhost:8080'],
      message:
        'cloudlessctl: --server: expected an address such as http://127.0.0.1:8080, got "localhost:8080"',
    },
    {
      argv: ['workload', 'create', 'web'],
      message: 'cloudlessctl: nothing to run: give --image, or a command after --',
    },
    {
      argv: ['workload', 'create', 'web', 'nginx'],
      message:
        'cloudlessctl: unexpected "nginx": put the command after --, for example: cloudlessctl workload create web -- sleep 60',
    },
    {
      argv: ['workload', 'create', 'web', '--image', 'x', '--port', 'x'],
      message:
        'cloudlessctl: --port: expected 8080, http=8080, dns=53/udp or, with a host port, 80:8080, got "x"',
    },
    {
      argv: ['workload', 'create', 'web', '--image', 'x', '--restart', 'nver'],
      message:
        'cloudlessctl: --restart: expected one of ALWAYS, ON_FAILURE, NEVER, got "nver"; did you mean NEVER?',
    },
    {
      argv: ['workload', 'update', 'web'],
      message: 'cloudlessctl: nothing to change: give at least one flag, or a command after --',
    },
    {
      argv: ['exec', 'web', 'ls'],
      message:
        'cloudlessctl: unexpected "ls": put the command after --, for example: cloudlessctl exec web -- ls -l',
    },
    {
      argv: ['node', 'taint', 'web1', 'a=b:NOPE'],
      message:
        'cloudlessctl: a=b:NOPE: unknown effect, expected one of NO_SCHEDULE, PREFER_NO_SCHEDULE, NO_EXECUTE',
    },
    {
      argv: ['apply'],
      message: "cloudlessctl: required option '-f, --filename <path>' not specified",
    },
    {
      argv: ['apply', '-f', 'none.yaml'],
      message: 'cloudlessctl: none.yaml: no such file or directory',
    },
  ])(
    'rejects the command line $argv with exit code 2 before it connects',
    async ({ argv, message }) => {
      const { exitCode, stdout, stderr, servers } = await runCli(argv);
      expect({ exitCode, stdout, servers }).toEqual({ exitCode: 2, stdout: '', servers: [] });
      expect(stderr.slice(0, message.length)).toBe(message);
      expect(stderr[message.length]).toBe('\n');
    },
  );

  it('has the version of its package.json', async () => {
    const { version } = JSON.parse(
      await readFile(new URL('../package.json', import.meta.url), 'utf8'),
    ) as { version: string };
    expect(version).toBe(VERSION);
  });

  it('prints its version as text and as JSON', async () => {
    expect(await runCli(['--version'])).toMatchObject({
      exitCode: 0,
      stdout: 'cloudlessctl 0.1.0\n',
    });
    expect(await runCli(['version', '--client', '-o', 'json'])).toMatchObject({
      exitCode: 0,
      stdout: '{\n  "version": "0.1.0"\n}\n',
    });
  });

  it('prints the version of the coordinator, and only its own version when the coordinator does not answer', async () => {
    const getServerInfo = () => ({
      version: '0.9.0',
      clusterId: 'c1',
      epoch: 3n,
      revision: 41n,
      protocolMin: 1,
      protocolMax: 2,
    });
    expect(await runCli(['version'], { coordinator: { getServerInfo } })).toMatchObject({
      exitCode: 0,
      stdout: 'cloudlessctl 0.1.0\ncoordinator 0.9.0 (cluster c1, epoch 3)\n',
    });
    const { stdout } = await runCli(['version', '-o', 'json'], { coordinator: { getServerInfo } });
    expect(JSON.parse(stdout)).toEqual({
      version: '0.1.0',
      server: {
        version: '0.9.0',
        clusterId: 'c1',
        epoch: '3',
        revision: '41',
        protocolMin: 1,
        protocolMax: 2,
      },
    });
    const unavailable = () => {
      throw new ConnectError('it is starting', Code.Unavailable);
    };
    expect(
      await runCli(['version'], { coordinator: { getServerInfo: unavailable } }),
    ).toMatchObject({
      exitCode: 5,
      stdout: 'cloudlessctl 0.1.0\n',
      stderr: 'cloudlessctl: it is starting (UNAVAILABLE)\n',
    });
    const help = await runCli(['workload', 'create', '--help']);
    expect(help.exitCode).toBe(0);
    expect(help.stdout).toContain('--memory <bytes>');
    expect(help.stdout).toContain('Global options:');
    expect((await runCli(['workload'])).exitCode).toBe(2);
  });

  it.each([
    [Code.Canceled, 1],
    [Code.Unknown, 1],
    [Code.InvalidArgument, 2],
    [Code.DeadlineExceeded, 6],
    [Code.NotFound, 3],
    [Code.AlreadyExists, 4],
    [Code.PermissionDenied, 1],
    [Code.ResourceExhausted, 7],
    [Code.FailedPrecondition, 4],
    [Code.Aborted, 4],
    [Code.OutOfRange, 1],
    [Code.Unimplemented, 1],
    [Code.Internal, 1],
    [Code.Unavailable, 5],
    [Code.DataLoss, 1],
    [Code.Unauthenticated, 1],
  ])('maps error code %i of the coordinator to exit code %i', async (code, exitCode) => {
    const coordinator = {
      getWorkload: () => {
        throw new ConnectError('it went wrong', code);
      },
    };
    const result = await runCli(['workload', 'get', 'web'], { coordinator });
    expect(result.exitCode).toBe(exitCode);
    expect(result.stderr).toContain('it went wrong');
  });

  it('prints the gRPC name of the error code of the coordinator', async () => {
    const coordinator = {
      getWorkload: () => {
        throw new ConnectError('workload default/web does not exist', Code.NotFound);
      },
    };
    expect((await runCli(['describe', 'web'], { coordinator })).stderr).toBe(
      'cloudlessctl: workload default/web does not exist (NOT_FOUND)\n',
    );
  });

  it('exits with 0 and without a message when the reader closes the output pipe', async () => {
    expect(await runCli(['version'], { brokenAfter: 0 })).toMatchObject({
      exitCode: 0,
      stderr: '',
    });
    expect(await runCli(['--help'], { brokenAfter: 0 })).toMatchObject({ exitCode: 0, stderr: '' });
  });

  it('exits with 130 on Ctrl-C', async () => {
    const stop = new AbortController();
    const coordinator = {
      listEvents: () => ({ events: [create(EventSchema, { id: '1', reason: 'NodeLost' })] }),
      watchEvents: async function* () {
        yield { event: create(EventSchema, { id: '2', reason: 'NodeReady' }) };
        await new Promise(() => undefined);
      },
    };
    const onStdout = (text: string): void => {
      if (text.includes('NodeReady')) stop.abort();
    };
    const result = await runCli(['events', '--watch'], {
      coordinator,
      signal: stop.signal,
      onStdout,
    });
    expect(result).toMatchObject({ exitCode: 130, stderr: '' });
    expect(result.stdout).toContain('NodeLost');
  });
});

describe('cloudlessctl workload', () => {
  it('creates a workload with the values of the flags', async () => {
    const requests: CreateWorkloadRequest[] = [];
    const coordinator = {
      createWorkload: (request: CreateWorkloadRequest) => {
        requests.push(request);
        return aWorkload({ namespace: request.namespace, name: request.name });
      },
    };
    const argv = [
      'workload',
      'create',
      'prod/web',
      '--replicas',
      '3',
      '--port',
      'http=8080',
      '--port',
      '53/udp',
      '--env',
      'A=b=c',
      '--cpu',
      '0.5',
      '--memory',
      '64Mi',
    ];
    const more = [
      '--zone',
      'a',
      '--zone',
      'b',
      '--label',
      'app=web',
      '--restart',
      'on-failure',
      '--min-ready',
      '1m',
      '--request-id',
      'r1',
      '--',
      'sh',
      '-c',
      'exit 1',
    ];
    const result = await runCli([...argv, ...more], { coordinator });
    expect(result).toMatchObject({
      exitCode: 0,
      stdout: 'workload prod/web: created\n',
      stderr: '',
    });
    expect(requests).toMatchObject([
      {
        namespace: 'prod',
        name: 'web',
        requestId: 'r1',
        spec: {
          command: ['sh', '-c', 'exit 1'],
          replicas: 3,
          ports: [
            { name: 'http', containerPort: 8080 },
            { name: '', containerPort: 53, protocol: 1 },
          ],
          env: { A: 'b=c' },
          resources: { requests: { cpuMillis: 500, memoryBytes: 67108864n } },
          placement: { zones: ['a', 'b'] },
          labels: { app: 'web' },
          restart: { policy: 1 },
          rollout: { minReadyDuration: { seconds: 60n } },
        },
      },
    ]);
  });

  it('updates exactly the fields of the given flags by an update mask', async () => {
    const requests: UpdateWorkloadRequest[] = [];
    const coordinator = {
      updateWorkload: (request: UpdateWorkloadRequest) => {
        requests.push(request);
        return aWorkload();
      },
    };
    const result = await runCli(
      ['workload', 'update', 'web', '--image', 'nginx:2', '--cpu', '250m', '--max-surge', '0'],
      {
        coordinator,
      },
    );
    expect(result).toMatchObject({ exitCode: 0, stdout: 'workload default/web: updated\n' });
    expect(requests[0]?.updateMask?.paths).toEqual([
      'image',
      'resources.requests.cpu_millis',
      'rollout.max_surge',
    ]);
    expect(requests[0]?.spec).toMatchObject({
      image: 'nginx:2',
      resources: { requests: { cpuMillis: 250 } },
      rollout: { maxSurge: 0 },
    });
    expect(requests[0]?.expectedGeneration).toBeUndefined();
  });

  it('reads the workload again and retries when a concurrent update conflicts with a change of a map', async () => {
    const requests: UpdateWorkloadRequest[] = [];
    let generation = 3n;
    const coordinator = {
      getWorkload: () =>
        aWorkload({ generation, spec: { env: { A: '1', B: '2', G: String(generation) } } }),
      updateWorkload: (request: UpdateWorkloadRequest) => {
        requests.push(request);
        if (requests.length > 1) return aWorkload();
        generation = 4n;
        throw new ConnectError('changed meanwhile', Code.Aborted);
      },
    };
    const result = await runCli(['workload', 'update', 'web', '--env', 'A-', '--env', 'C=3'], {
      coordinator,
    });
    expect(result.exitCode).toBe(0);
    expect(requests.map(({ expectedGeneration }) => expectedGeneration)).toEqual([3n, 4n]);
    expect(requests[1]?.spec?.env).toEqual({ B: '2', C: '3', G: '4' });
    expect(requests[1]?.updateMask?.paths).toEqual(['env']);
  });

  it.each([
    ['workload', 'scale', 'web', '5'],
    ['scale', 'web', '5'],
  ])('sets the number of replicas with %s %s', async (...argv) => {
    const counts: (number | undefined)[] = [];
    const coordinator = {
      scaleWorkload: ({ replicas }: ScaleWorkloadRequest) => {
        counts.push(replicas);
        return aWorkload();
      },
    };
    expect(await runCli(argv, { coordinator })).toMatchObject({
      exitCode: 0,
      stdout: 'workload default/web: scaled to 5\n',
    });
    expect(counts).toEqual([5]);
  });

  it('lists the workloads of all pages as a table', async () => {
    const coordinator = {
      listWorkloads: ({ pageToken }: { pageToken: string }) =>
        pageToken === ''
          ? { workloads: [aWorkload()], nextPageToken: 'p2' }
          : {
              workloads: [
                aWorkload({
                  name: 'job',
                  status: {
                    phase: WorkloadStatus_Phase.SCHEDULING,
                    readyReplicas: 0,
                    reason: 'no node\nhas room',
                  },
                }),
              ],
            },
    };
    for (const argv of [
      ['workload', 'list'],
      ['get', 'workloads'],
      ['get', 'wl'],
    ]) {
      expect((await runCli(argv, { coordinator })).stdout).toBe(
        [
          'NAMESPACE   NAME   STATUS       READY   UPDATED   AGE   REASON',
          'default     web    Running      2/2     2         60m   -',
          'default     job    Scheduling   0/2     2         60m   no node has room',
          '',
        ].join('\n'),
      );
    }
  });

  it('reports an empty list on stderr for tables, and prints an empty JSON list', async () => {
    const coordinator = { listWorkloads: () => ({}) };
    expect(await runCli(['get', 'workloads'], { coordinator })).toMatchObject({
      stdout: '',
      stderr: 'no workloads in namespace default\n',
    });
    expect(await runCli(['get', 'workloads', '-A'], { coordinator })).toMatchObject({
      stdout: '',
      stderr: 'no workloads\n',
    });
    expect(
      JSON.parse((await runCli(['get', 'workloads', '-o', 'json'], { coordinator })).stdout),
    ).toEqual({ workloads: [] });
  });

  it('prints JSON with zero values, and YAML with the same content', async () => {
    const coordinator = { getWorkload: () => aWorkload() };
    const json = JSON.parse(
      (await runCli(['get', 'workload', 'web', '-o', 'json'], { coordinator })).stdout,
    ) as Record<string, unknown>;
    expect(json).toMatchObject({
      name: 'web',
      generation: '3',
      spec: { replicas: 2, runtime: '' },
      status: { phase: 'RUNNING', succeededReplicas: 0 },
    });
    const { parse } = await import('yaml');
    expect(
      parse((await runCli(['workload', 'get', 'web', '-o', 'yaml'], { coordinator })).stdout),
    ).toEqual(json);
  });

  it('describes a workload with spec, status, replicas, versions and events', async () => {
    const coordinator = {
      getWorkload: () => aWorkload(),
      listEvents: () => ({
        events: [
          create(EventSchema, {
            time: timestampFromMs(NOW_MS - 5000),
            reason: 'ReplicaPlaced',
            message: 'on node1',
            namespace: 'default',
            workload: 'web',
          }),
        ],
      }),
    };
    const { stdout, exitCode } = await runCli(['describe', 'web'], { coordinator });
    expect(exitCode).toBe(0);
    expect(stdout).toBe(
      `Name:        web
Namespace:   default
Uid:         00000000000000aa
Generation:  3
Created:     2025-12-31T23:00:00Z (60m ago)

Spec:
  Image:     nginx:alpine
  Replicas:  2

Status:
  Phase:          Running
  Ready:          2 of 2 (2 live, 2 updated)
  Version:        1
  Min available:  0

Replicas:
  REPLICA              SLOT   VERSION   STATUS    READY   NODE    ZONE   RESTARTS   AGE   ENDPOINTS   REASON
  00000000000000aa-1   0      1         Running   yes     node1   a      0          60m   -           -
  00000000000000aa-2   1      1         Running   yes     node2   a      0          60m   -           -

Versions:
  (none)

Events:
  ID   AGE   SEVERITY   REASON          ABOUT         MESSAGE
  -    5s    Info       ReplicaPlaced   default/web   on node1
`,
    );
  });

  it('explains for each node whether and how well a replica fits', async () => {
    const coordinator = {
      explainWorkload: () => ({
        summary: '1 replica has no node.',
        nodes: [
          {
            nodeId: 'n1',
            zone: 'a',
            fits: true,
            score: 0.7512,
            terms: { locality: 0.7, antiAffinity: -0.25 },
          },
          { nodeId: 'n2', zone: 'b', fits: false, reason: 'cpu: 500m wanted, 100m free' },
        ],
      }),
    };
    expect((await runCli(['explain', 'web'], { coordinator })).stdout).toBe(
      `1 replica has no node.

NODE   ZONE   FITS   SCORE   LOCALITY   RELIABILITY   COST   UTILISATION   NETWORK-PENALTY   AFFINITY   ANTI-AFFINITY   TAINTS   REASON
n1     a      yes    0.751   0.70       0.00          0.00   0.00          0.00              0.00       -0.25           0.00     -
n2     b      no     -       -          -             -      -             -                 -          -               -        cpu: 500m wanted, 100m free
`,
    );
  });

  it('deletes workloads with every accepted form of the command', async () => {
    const deleted: string[] = [];
    const coordinator = {
      deleteWorkload: ({
        namespace,
        name,
        requestId,
      }: {
        namespace: string;
        name: string;
        requestId: string;
      }) => {
        deleted.push(`${namespace}/${name} ${requestId}`);
        if (name === 'none') throw new ConnectError('no such workload', Code.NotFound);
        return aWorkload({ namespace, name, ...withoutReplicas });
      },
    };
    expect((await runCli(['delete', 'web'], { coordinator })).exitCode).toBe(0);
    expect(
      (await runCli(['delete', 'workload', 'web', '--request-id', 'r'], { coordinator })).exitCode,
    ).toBe(0);
    expect(
      (
        await runCli(['workload', 'delete', 'a/x', 'b', '-n', 'c', '--request-id', 'r'], {
          coordinator,
        })
      ).exitCode,
    ).toBe(0);
    expect((await runCli(['delete', 'none'], { coordinator })).exitCode).toBe(3);
    expect((await runCli(['delete', 'none', '--ignore-not-found'], { coordinator })).exitCode).toBe(
      0,
    );
    expect(deleted).toEqual([
      'default/web ',
      'default/web r',
      'a/x r/a/x',
      'c/b r/c/b',
      'default/none ',
      'default/none ',
    ]);
  });

  it('prints colours on a terminal only, unless --no-color or NO_COLOR is set', async () => {
    const coordinator = { listWorkloads: () => ({ workloads: [aWorkload()] }) };
    const hasColours = async (
      argv: string[],
      options: { isTTY?: boolean; env?: Record<string, string> },
    ): Promise<boolean> =>
      (await runCli(['get', 'workloads', ...argv], { coordinator, ...options })).stdout.includes(
        '\u001b[32mRunning\u001b[39m',
      );
    expect(await hasColours([], { isTTY: true })).toBe(true);
    expect(await hasColours([], {})).toBe(false);
    expect(await hasColours(['--no-color'], { isTTY: true })).toBe(false);
    expect(await hasColours([], { isTTY: true, env: { NO_COLOR: '1' } })).toBe(false);
  });
});

describe('cloudlessctl node', () => {
  it('lists nodes and describes a node', async () => {
    const coordinator = {
      listNodes: () => ({ nodes: [aNode({ cordoned: true })] }),
      getNode: () => aNode(),
    };
    expect((await runCli(['get', 'nodes'], { coordinator })).stdout).toBe(
      'NAME   STATUS           ZONE   REPLICAS   CPU        MEMORY      AGE\nweb1   Ready,Cordoned   a      2/110      250m/3500m   128Mi/7Gi   3d\n'.replace(
        'CPU        MEMORY',
        'CPU          MEMORY',
      ),
    );
    expect(
      (
        await runCli(['node', 'describe', 'web1'], {
          coordinator: { ...coordinator, listEvents: () => ({}) },
        })
      ).stdout,
    ).toContain('Reliability:  100.0 % of the last hour');
  });

  it.each([
    ['cordon', 'cordoned'],
    ['uncordon', 'uncordoned'],
    ['drain', 'draining'],
  ])('%s reports the node as %s', async (verb, done) => {
    const coordinator = {
      cordonNode: () => aNode(),
      uncordonNode: () => aNode(),
      drainNode: () => aNode(),
    };
    expect(await runCli(['node', verb, 'web1'], { coordinator })).toMatchObject({
      exitCode: 0,
      stdout: `node web1: ${done}\n`,
    });
  });

  it('reports an empty list of nodes on stderr, and prints an empty JSON list', async () => {
    const coordinator = { listNodes: () => ({}) };
    expect(await runCli(['node', 'list'], { coordinator })).toMatchObject({
      stdout: '',
      stderr: 'no nodes\n',
    });
    expect(await runCli(['node', 'list', '-o', 'json'], { coordinator })).toMatchObject({
      stdout: '{\n  "nodes": []\n}\n',
      stderr: '',
    });
  });

  it('prints one node as an object and several nodes as a list with -o json', async () => {
    const coordinator = {
      getNode: ({ nodeId }: { nodeId: string }) => aNode({ id: nodeId }),
    };
    const one = await runCli(['node', 'get', 'web1', '-o', 'json'], { coordinator });
    expect(JSON.parse(one.stdout)).toMatchObject({ id: 'web1' });
    const two = await runCli(['get', 'nodes', 'web1', 'web2', '-o', 'json'], { coordinator });
    expect(JSON.parse(two.stdout)).toMatchObject({ nodes: [{ id: 'web1' }, { id: 'web2' }] });
  });

  it('sends changes of labels and taints, and removes a node with --force', async () => {
    const updates: UpdateNodeRequest[] = [];
    const forced: boolean[] = [];
    const coordinator = {
      updateNode: (request: UpdateNodeRequest) => {
        updates.push(request);
        return aNode();
      },
      removeNode: ({ force }: { force: boolean }) => {
        forced.push(force);
        return {};
      },
    };
    await runCli(['node', 'label', 'web1', 'disk=ssd', 'old-'], { coordinator });
    await runCli(
      ['node', 'taint', 'web1', 'gpu=yes:NO_SCHEDULE', 'x:NO_EXECUTE', 'old-', 'a:NO_SCHEDULE-'],
      { coordinator },
    );
    await runCli(['node', 'remove', 'web1', '--force'], { coordinator });
    expect(updates).toMatchObject([
      { nodeId: 'web1', setLabels: { disk: 'ssd' }, removeLabels: ['old'] },
      {
        setTaints: [
          { key: 'gpu', value: 'yes', effect: Taint_Effect.NO_SCHEDULE },
          { key: 'x', value: '', effect: Taint_Effect.NO_EXECUTE },
        ],
        removeTaints: ['old', 'a:NO_SCHEDULE'],
      },
    ]);
    expect(forced).toEqual([true]);
  });
});

describe('cloudlessctl exec', () => {
  it('passes on standard input, both output streams, the exit code and all words after --', async () => {
    const requests: ExecCommandRequest[] = [];
    const coordinator = {
      execCommand: (request: ExecCommandRequest) => {
        requests.push(request);
        return { stdout: 'out\n', stderr: 'err\n', exitCode: 42 };
      },
    };
    const result = await runCli(
      ['exec', 'web', '--timeout', '5s', '--', 'sh', '-c', 'ls', '-n', '--', 'x'],
      {
        coordinator,
        stdin: { kind: 'pipe', text: 'in' },
      },
    );
    expect(result).toMatchObject({ exitCode: 42, stdout: 'out\n', stderr: 'err\n' });
    expect(requests).toMatchObject([
      {
        namespace: 'default',
        name: 'web',
        command: ['sh', '-c', 'ls', '-n', '--', 'x'],
        timeout: { seconds: 5n },
        stdin: new TextEncoder().encode('in'),
      },
    ]);
  });

  it.each([
    ['0123456789ab', { containerId: '0123456789ab' }],
    ['00000000000000aa-7', { replicaId: '00000000000000aa-7' }],
    ['default/0123456789ab', { namespace: 'default', name: '0123456789ab' }],
    ['deadbeefcafe', { namespace: 'default', name: 'deadbeefcafe' }],
  ])('recognises the kind of the target %s', async (target, fields) => {
    let seen: ExecCommandRequest | undefined;
    const coordinator = {
      execCommand: (request: ExecCommandRequest) => {
        seen = request;
        return { exitCode: 0 };
      },
    };
    expect((await runCli(['exec', target, '--', 'true'], { coordinator })).exitCode).toBe(0);
    expect(seen).toMatchObject(fields);
  });

  it('reads only piped standard input, and rejects more than 1 MiB', async () => {
    const sizes: number[] = [];
    const coordinator = {
      execCommand: ({ stdin }: ExecCommandRequest) => {
        sizes.push(stdin.length);
        return {};
      },
    };
    await runCli(['exec', 'web', '--', 'cat'], {
      coordinator,
      stdin: { kind: 'other', text: 'x' },
    });
    await runCli(['exec', 'web', '--', 'cat'], { coordinator, stdin: { kind: 'pipe', text: 'x' } });
    await runCli(['exec', 'web', '--no-stdin', '--', 'cat'], {
      coordinator,
      stdin: { kind: 'pipe', text: 'x' },
    });
    expect(sizes).toEqual([0, 1, 0]);
    const long = await runCli(['exec', 'web', '--', 'cat'], {
      coordinator,
      stdin: { kind: 'pipe', text: 'x'.repeat(1024 * 1024 + 1) },
    });
    expect(long).toMatchObject({
      exitCode: 2,
      stderr: 'cloudlessctl: standard input is longer than 1 MiB; use -i to stream it\n',
    });
  });
});
