import { create } from '@bufbuild/protobuf';
import { timestampFromMs } from '@bufbuild/protobuf/wkt';
import type { ListWorkloadsRequest } from '@cloudless/api';
import { EventSchema, PlanSummarySchema } from '@cloudless/api';
import {
  USER_TOKEN,
  NOW_MS,
  aNode,
  aWorkload,
  runCli,
  type CliOptions,
} from '../testing/run-cli.js';

const CONFIG_PATH = '/home/me/.config/cloudless/config.yaml';
const CONFIG = `current: dev
contexts:
  dev: { server: http://127.0.0.1:9000, namespace: team }
  prod: { server: https://cluster.example:8443, tokenFile: /token }
`;

const coordinator = {
  listWorkloads: ({ namespace, includeReplicas }: ListWorkloadsRequest) => ({
    workloads: [
      aWorkload(),
      aWorkload({ name: 'worker' }),
      aWorkload({ name: 'shop', namespace: 'prod' }),
      aWorkload({ name: 'board', namespace: 'team' }),
    ]
      .filter((workload) => namespace === '' || workload.namespace === namespace)
      .map((workload) => {
        // Like the coordinator, which leaves the replicas out of a list unless they are requested.
        if (!includeReplicas) workload.status!.replicas = [];
        return workload;
      }),
  }),
  listNodes: () => ({ nodes: [aNode(), aNode({ id: 'web2', zone: 'b' })] }),
  getWorkload: () =>
    aWorkload({ spec: { ports: [{ name: 'http', containerPort: 80 }, { containerPort: 9090 }] } }),
  listEvents: () => ({
    events: [
      create(EventSchema, { id: '0000000007-0000000001', reason: 'NodeLost', message: 'x' }),
    ],
  }),
  listPlans: () => ({
    plans: [
      create(PlanSummarySchema, { id: '6f1d0c9be2a45718', summary: 'update default/web' }),
      create(PlanSummarySchema, { id: 'a'.repeat(16), executedAt: timestampFromMs(NOW_MS) }),
    ],
  }),
};
const agents = {
  listContainers: () => ({
    containers: [
      { containerId: '0123456789abcdef', namespace: 'default', workload: 'web', nodeId: 'web1' },
      { containerId: 'fedcba9876543210', namespace: 'prod', workload: 'shop', nodeId: 'web2' },
    ],
  }),
};

const secrets: NonNullable<CliOptions['secrets']> = {
  listSecrets: () => ({ secrets: [{ name: 'db', version: 2 }] }),
  getSecret: ({ namespace }) => ({
    accessTokens: [1, 2].map((number) => ({ id: `${namespace}-${number}`, audience: 'ci' })),
  }),
};

const network: NonNullable<CliOptions['network']> = {
  listServices: ({ namespace }) => ({
    services: [{ namespace, name: `api-${namespace}`, status: { readyEndpoints: 2 } }],
  }),
  listRoutes: ({ namespace }) => ({
    routes: [{ namespace, name: `shop-${namespace}`, spec: { hosts: ['shop.example.com'] } }],
  }),
};

/** Returns the lines that the completion scripts receive for the last of the words. */
async function complete(...words: string[]): Promise<readonly string[]> {
  const { stdout } = await runCli(['__complete', '--', ...words], {
    ...{ coordinator, agents, secrets, network },
  });
  return stdout.split('\n').filter((line) => line !== '');
}

const withoutDescriptions = (lines: readonly string[]): readonly string[] =>
  lines.map((line) => line.replace(/\t.*/, ''));

describe('shell completion', () => {
  it.each([
    { words: ['work'], found: ['workload'] },
    { words: ['node', 'un'], found: ['uncordon', 'unban'] },
    { words: ['scale', ''], found: ['web', 'worker'] },
    { words: ['logs', 'wo'], found: ['worker'] },
    { words: ['delete', 'web', 'wo'], found: ['worker'] },
    { words: ['port-forward', 'wo'], found: ['worker'] },
    { words: ['port-forward', 'worker', ''], found: ['http', 'port-9090'] },
    { words: ['node', 'drain', ''], found: ['web1', 'web2'] },
    { words: ['node', 'drain', 'web1', ''], found: ['web1', 'web2'] },
    { words: ['node', 'describe', 'web1', ''], found: [] },
    { words: ['secret', 'token', 'revoke', ''], found: ['db'] },
    { words: ['route', 'update', 'shop', '--tls-certificate-secret', ''], found: ['db'] },
    { words: ['secret', 'token', 'revoke', 'prod/db', ''], found: ['prod-1', 'prod-2'] },
    { words: ['service', 'update', ''], found: ['api-default'] },
    { words: ['-n', 'prod', 'network', 'trace', 'web', ''], found: ['api-prod'] },
    { words: ['route', 'delete', 'shop-default', ''], found: ['shop-default'] },
    { words: ['-n', 'prod', 'route', 'describe', 's'], found: ['shop-prod'] },
    {
      words: ['get', ''],
      found: [
        'workloads',
        'replicas',
        'containers',
        'services',
        'routes',
        'secrets',
        'configs',
        'policies',
        'plans',
        'nodes',
        'events',
        'namespaces',
        'users',
        'tokens',
      ],
    },
    { words: ['get', 'w'], found: ['workloads'] },
    { words: ['get', 'node', ''], found: ['web1', 'web2'] },
    { words: ['get', 'wl', ''], found: ['web', 'worker'] },
    { words: ['get', 'ns', ''], found: ['default', 'prod', 'team'] },
    {
      words: ['-n', 'prod', 'get', 'replicas', ''],
      found: ['00000000000000aa-1', '00000000000000aa-2'],
    },
    { words: ['get', 'containers', ''], found: ['0123456789ab'] },
    { words: ['get', 'events', ''], found: [] },
    { words: ['describe', 'w'], found: ['web', 'worker', 'workloads'] },
    { words: ['describe', 'node', ''], found: ['web1', 'web2'] },
    { words: ['rollout', 're'], found: ['resume', 'restart'] },
    { words: ['rollout', 'undo', 'wo'], found: ['worker'] },
    { words: ['rollout', 'undo', '--to'], found: ['--token-file', '--to-version'] },
    { words: ['completion', ''], found: ['bash', 'zsh', 'fish'] },
    { words: ['help', 'no'], found: ['node'] },
    { words: ['help', 'node', 'dr'], found: ['drain'] },
    { words: ['workload', 'create', '--mem'], found: ['--memory', '--memory-limit'] },
    { words: ['workload', 'create', ''], found: [] },
  ])('completes the last of the words $words to $found', async ({ words, found }) => {
    expect(withoutDescriptions(await complete(...words))).toEqual(found);
  });

  it.each([
    {
      words: ['get', 'nodes', '-o', ''],
      found: ['table', 'wide', 'json', 'yaml', 'name', 'manifest'],
    },
    { words: ['-o', 'j'], found: ['json'] },
    { words: ['get', 'nodes', '--output=y'], found: ['--output=yaml'] },
    { words: ['get', 'nodes', '-oj'], found: ['-ojson'] },
    { words: ['-n', ''], found: ['default', 'prod', 'team'] },
    { words: ['get', 'workloads', '--namespace', 'p'], found: ['prod'] },
    { words: ['events', '--workload', 'w'], found: ['web', 'worker'] },
    { words: ['events', '--node', ''], found: ['web1', 'web2'] },
    { words: ['events', '--why', ''], found: ['0000000007-0000000001'] },
    { words: ['apply', '--plan-id', ''], found: ['6f1d0c9be2a45718'] },
    { words: ['workload', 'create', '--zone', ''], found: ['a', 'b'] },
    { words: ['workload', 'create', '--runtime', ''], found: ['process', 'cri'] },
    { words: ['rollout', 'status', '--watch', ''], found: ['true', 'false'] },
    { words: ['logs', '--stream', ''], found: ['stdout', 'stderr'] },
    { words: ['workload', 'create', '--replicas', ''], found: [] },
    { words: ['apply', '-f', ''], found: [':files'] },
    { words: ['admin', 'verify', 'back'], found: [':files'] },
    { words: ['admin', 'restore', 'b', '--data-dir', ''], found: [':directories'] },
    { words: ['exec', 'web', '--', 'ls', ''], found: [':files'] },
  ])('completes the value of the option in $words to $found', async ({ words, found }) => {
    expect(withoutDescriptions(await complete(...words))).toEqual(found);
  });

  it.each([
    { words: ['-n', 'prod', 'scale', ''], found: ['shop'] },
    { words: ['scale', '-n', 'prod', ''], found: ['shop'] },
    { words: ['scale', '--namespace=prod', ''], found: ['shop'] },
    { words: ['scale', '--timeout', '5s', '--wait', ''], found: ['web', 'worker'] },
  ])('does not count options and their values in $words as operands', async ({ words, found }) => {
    expect(withoutDescriptions(await complete(...words))).toEqual(found);
  });

  it('describes each candidate', async () => {
    expect(await complete('scale', 'web')).toEqual(['web\t2/2 ready nginx:alpine']);
    expect(await complete('node', 'drain', 'web2')).toEqual(['web2\tzone b, 2 replicas']);
    expect(await complete('-n', 'pro')).toEqual(['prod\t1 workload']);
    expect(await complete('apply', '--plan-id', '6')).toEqual([
      '6f1d0c9be2a45718\tupdate default/web',
    ]);
    expect(await complete('node', 'cor')).toEqual(['cordon\tmark nodes as unschedulable']);
  });

  it.each([{ words: ['context', 'use', ''] }, { words: ['get', 'nodes', '--context', ''] }])(
    'completes the contexts of the configuration file for $words',
    async ({ words }) => {
      const { stdout } = await runCli(['__complete', '--', ...words], {
        coordinator,
        files: { [CONFIG_PATH]: CONFIG },
      });
      expect(stdout).toBe('dev\thttp://127.0.0.1:9000\nprod\thttps://cluster.example:8443\n');
    },
  );

  it('asks the coordinator of the context on the command line, in the namespace of the context', async () => {
    const files = { [CONFIG_PATH]: CONFIG, '/token': USER_TOKEN };
    const options = { coordinator, files };
    const current = await runCli(['__complete', '--', 'scale', ''], options);
    expect(current.servers).toEqual(['http://127.0.0.1:9000']);
    expect(current.stdout).toMatch(/^board\t/);
    const other = await runCli(['__complete', '--', 'scale', '--context', 'prod', ''], options);
    expect(other.servers).toEqual(['https://cluster.example:8443']);
  });

  it.each([
    { name: 'no coordinator answers', words: ['scale', ''] },
    {
      name: 'the context on the command line does not exist',
      words: ['--context', 'x', 'scale', ''],
    },
    { name: 'the command does not exist', words: ['unknown', ''] },
  ])('prints nothing when $name', async ({ words }) => {
    expect(await runCli(['__complete', '--', ...words])).toMatchObject({
      exitCode: 0,
      stdout: '',
      stderr: '',
    });
  });

  it('rejects an unknown shell', async () => {
    expect(await runCli(['completion', 'ksh'])).toMatchObject({ exitCode: 2 });
  });
});
