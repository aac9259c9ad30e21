import { Code, ConnectError } from '@connectrpc/connect';
import { create } from '@bufbuild/protobuf';
import { timestampFromMs } from '@bufbuild/protobuf/wkt';
import { EventSchema, WorkloadStatus_Phase } from '@cloudless/api';
import type {
  CreateWorkloadRequest,
  ScaleWorkloadRequest,
  UpdateWorkloadRequest,
} from '@cloudless/api';
import { NOW_MS, aWorkload, runCli } from '../../testing/run-cli.js';

const withoutReplicas = { status: { totalReplicas: 0 } };

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

  it('updates only the fields of the given flags, which the update mask names', async () => {
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

  it.each([{ argv: ['workload', 'scale', 'web', '5'] }, { argv: ['scale', 'web', '5'] }])(
    'sets the number of replicas with $argv',
    async ({ argv }) => {
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
    },
  );

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

  it('prints a workload as JSON with zero values, and as YAML with the same content', async () => {
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

  it.each([['describe', 'web'] as const, ['explain', 'web'] as const])(
    'says how to list the replicas that the answer omits with %s',
    async (...argv) => {
      const names = { namespace: 'default', name: 'web' };
      const coordinator = {
        getWorkload: () => aWorkload({ status: { omittedReplicas: 999_000 } }),
        listEvents: () => ({}),
        explainWorkload: () => ({ ...names, omittedReplicas: 999_000 }),
      };
      expect((await runCli(argv, { coordinator })).stdout).toContain(
        '… and 999000 more replicas; list them with: cloudlessctl get replicas --workload default/web\n',
      );
    },
  );

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

  it('prints for each node the score of a replica, or the reason why no replica fits, with explain', async () => {
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
        replicas: [
          { id: 'r1', nodeId: 'n1', zone: 'a' },
          { id: 'r2', nodeId: 'n3', zone: 'a' },
          { id: 'r3', nodeId: 'n1', zone: 'a', leaving: true },
          { id: 'r4' },
        ],
      }),
    };
    const { stdout } = await runCli(['explain', 'web'], { coordinator });
    expect(stdout.slice(0, stdout.indexOf('\nREPLICA'))).toBe(
      `1 replica has no node.

NODE   ZONE   FITS   IN ZONE   ON NODE   SCORE   REASON
n1     a      yes    2         1         0.751   -
n2     b      no     0         0         -       cpu: 500m wanted, 100m free

The next replica goes to the first node. Nodes with fewer replicas of this workload in the zone (IN
ZONE) come first, then those with fewer on the node (ON NODE), then those with a higher SCORE.

SCORE TERM      FIRST
node            n1
locality        0.70
anti affinity   -0.25
score           0.751
`,
    );
    const wide = await runCli(['explain', 'web', '-o', 'wide'], { coordinator });
    expect(wide.stdout).toContain('LOCALITY   RELIABILITY   COST');
    expect(wide.stdout).toContain('0.70       0.00          0.00');
  });

  it('deletes workloads with delete and workload delete, and fails for an unknown workload without --ignore-not-found', async () => {
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
