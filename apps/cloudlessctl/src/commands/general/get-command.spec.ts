import { create, type MessageInitShape } from '@bufbuild/protobuf';
import { Code, ConnectError } from '@connectrpc/connect';
import {
  ReplicaStatusSchema,
  ReplicaStatus_Phase as Phase,
  WatchReplicasResponseSchema,
  WorkloadStatus_Phase,
} from '@cloudless/api';
import type {
  ListEventsRequest,
  ListReplicasRequest,
  ListWorkloadsRequest,
  Workload,
} from '@cloudless/api';
import { aNode, aWorkload, runCli } from '../../testing/run-cli.js';
import type { CliOptions } from '../../testing/run-cli.js';

const shop = aWorkload({
  namespace: 'prod',
  name: 'shop',
  uid: '00000000000000bb',
  status: {
    phase: WorkloadStatus_Phase.SCHEDULING,
    readyReplicas: 1,
    desiredReplicas: 10,
    replicas: [
      {
        id: '00000000000000bb-7',
        slot: 1,
        phase: Phase.PENDING,
        failedStarts: 3,
        reason: 'no node fits',
      },
      {
        id: '00000000000000bb-2',
        slot: 0,
        phase: Phase.RUNNING,
        ready: true,
        nodeId: 'node1',
        restarts: 12,
      },
    ].map((init) => create(ReplicaStatusSchema, init)),
  },
});
const web = aWorkload();
web.status!.replicas[0]!.failedStarts = 1;
const workloads = [web, shop];
const byNamespace = ({ namespace }: { readonly namespace: string }): readonly Workload[] =>
  workloads.filter((workload) => namespace === '' || workload.namespace === namespace);
const coordinator: NonNullable<CliOptions['coordinator']> = {
  listWorkloads: (request) => ({ workloads: [...byNamespace(request)] }),
  getWorkload: ({ namespace, name }) => {
    const found = workloads.find(
      (workload) => workload.namespace === namespace && workload.name === name,
    );
    if (found === undefined)
      throw new ConnectError(`workload "${namespace}/${name}" not found`, Code.NotFound);
    return found;
  },
  listNodes: () => ({ nodes: [aNode(), aNode({ id: 'web2' })] }),
  getNode: () => {
    throw new ConnectError('node "wbe1" not found', Code.NotFound);
  },
};
const get = (...argv: readonly string[]) => runCli(['get', ...argv], { coordinator });

describe('cloudlessctl get replicas', () => {
  it('lists the replicas of the namespace with workload, node and reason', async () => {
    expect((await get('replicas', '-n', 'prod')).stdout).toBe(
      [
        'NAMESPACE   WORKLOAD   REPLICA              STATUS    READY   NODE    RESTARTS   AGE   REASON',
        'prod        shop       00000000000000bb-2   Running   yes     node1   12         -     -',
        'prod        shop       00000000000000bb-7   Pending   no      -       0          -     no node fits',
        '',
      ].join('\n'),
    );
  });

  it('shows failed starts beside restarts with -o wide', async () => {
    const { stdout } = await get('replicas', '-n', 'prod', '-o', 'wide');
    const [header = '', ...rows] = stdout.split('\n').map((line) => line.split(/ {2,}/));
    const counts = ['RESTARTS', 'FAILED STARTS'].map((name) => header.indexOf(name));
    expect(rows.slice(0, 2).map((cells) => counts.map((index) => cells[index]))).toEqual([
      ['12', '0'],
      ['0', '3'],
    ]);
  });

  it.each([
    { argv: ['-A'], ids: ['aa-1', 'aa-2', 'bb-2', 'bb-7'] },
    { argv: ['-A', '--sort-by', '.failedStarts'], ids: ['aa-2', 'bb-2', 'aa-1', 'bb-7'] },
    { argv: ['-A', '--node', 'node1'], ids: ['aa-1', 'bb-2'] },
    { argv: ['--workload', 'prod/shop'], ids: ['bb-2', 'bb-7'] },
    { argv: ['-A', '--field-selector', 'phase=pending'], ids: ['bb-7'] },
    { argv: ['-A', '--field-selector', 'ready=true,nodeId!=node1'], ids: ['aa-2'] },
    { argv: ['-A', '--sort-by', '.restarts'], ids: ['aa-1', 'aa-2', 'bb-7', 'bb-2'] },
    { argv: ['00000000000000bb-7', '00000000000000aa-1'], ids: ['bb-7', 'aa-1'] },
  ])('shows $ids with $argv', async ({ argv, ids }) => {
    const { stdout } = await get('replicas', ...argv, '-o', 'name');
    expect(stdout).toBe(ids.map((id) => `00000000000000${id}\n`).join(''));
  });

  it.each([
    { argv: ['-n', 'prod'], ids: ['bb-1', 'bb-2', 'bb-3'], pages: 2 },
    { argv: ['--workload', 'prod/shop', '--node', 'node1'], ids: ['bb-2', 'bb-3'], pages: 2 },
    { argv: ['00000000000000bb-3'], ids: ['bb-3'], pages: 2 },
    { argv: ['00000000000000aa-2'], ids: ['aa-2'], pages: 0 },
  ])(
    'reads the replicas that the answer omits page by page with $argv',
    async ({ argv, ids, pages }) => {
      const requests: ListReplicasRequest[] = [];
      const toGroup = (number: number, nodeId: string) => ({
        ...{ namespace: 'prod', name: 'shop', uid: shop.uid },
        replicas: [{ id: `${shop.uid}-${number}`, slot: number, nodeId }],
      });
      const large = aWorkload({
        ...{ namespace: 'prod', name: 'shop', uid: shop.uid },
        status: { replicas: [{ id: `${shop.uid}-1` }], omittedReplicas: 2 },
      });
      const { stdout } = await runCli(['get', 'replicas', ...argv, '-o', 'name'], {
        coordinator: {
          getWorkload: () => large,
          listWorkloads: ({ namespace }) => ({
            workloads: namespace === 'prod' ? [large] : [aWorkload(), large],
          }),
          listReplicas: (request) => {
            requests.push(request);
            return request.pageToken === ''
              ? { workloads: [toGroup(1, ''), toGroup(2, 'node1')], nextPageToken: 'next' }
              : { workloads: [toGroup(3, 'node1')] };
          },
        },
      });
      expect(stdout).toBe(ids.map((id) => `00000000000000${id}\n`).join(''));
      const nodeId = argv.includes('--node') ? 'node1' : '';
      expect(requests).toMatchObject(
        ['', 'next']
          .slice(0, pages)
          .map((pageToken) => ({ namespace: 'prod', name: 'shop', nodeId, pageToken })),
      );
    },
  );

  it('asks the coordinator only for the workloads on the node', async () => {
    const requests: ListWorkloadsRequest[] = [];
    await runCli(['get', 'replicas', '-A', '--node', 'node1', '-l', 'app=shop'], {
      coordinator: {
        listWorkloads: (request) => {
          requests.push(request);
          return {};
        },
      },
    });
    expect(requests).toMatchObject([
      { nodeId: 'node1', includeReplicas: true, labelSelector: 'app=shop', pageSize: 50 },
    ]);
  });

  it('prints each change of a replica, and the end of one, below the sorted current state', async () => {
    const [first, second] = [
      { id: 'r-1', slot: 0 },
      { id: 'r-2', slot: 1 },
    ];
    const web = { namespace: 'default', name: 'web' };
    const responses: readonly MessageInitShape<typeof WatchReplicasResponseSchema>[] = [
      { workloads: [{ ...web, replicas: [second, first] }] },
      { synced: true, revision: 1n },
      { workloads: [{ ...web, replicas: [{ ...second, ready: true }, first] }], revision: 2n },
      { workloads: [{ ...web, removedReplicaIds: ['r-9', 'r-1'] }], revision: 3n },
    ];
    const watchReplicas: NonNullable<typeof coordinator.watchReplicas> = async function* () {
      for (const response of responses) yield create(WatchReplicasResponseSchema, response);
      throw new ConnectError('done', Code.Internal);
    };
    const { stdout } = await runCli(['get', 'replicas', '--watch'], {
      coordinator: { watchReplicas },
    });
    expect(
      stdout
        .trimEnd()
        .split('\n')
        .map((line) => line.split(/ {2,}/).slice(2, 5).join(' ')),
    ).toEqual([
      'REPLICA STATUS READY',
      'r-1 Pending no',
      'r-2 Pending no',
      'r-2 Pending yes',
      'r-1 Deleted -',
    ]);
  });

  it.each([
    {
      argv: ['web'],
      message:
        '"web" is not the id of a replica; the replicas of a workload: cloudlessctl get replicas --workload web',
      exitCode: 2,
    },
    {
      argv: ['00000000000000cc-1'],
      message:
        'replica 00000000000000cc-1 not found; cloudlessctl get replicas -A lists the replicas',
      exitCode: 3,
    },
    {
      argv: ['--workload', 'wbe'],
      message: 'workload "default/wbe" not found; did you mean web?',
      exitCode: 3,
    },
    {
      argv: ['--field-selector', 'phse=running'],
      message:
        '--field-selector: there is no field "phse"; did you mean phase?; -o json shows all fields',
      exitCode: 2,
    },
    {
      argv: ['--field-selector', 'ready'],
      message: '--field-selector: expected field=value or field!=value, got "ready"',
      exitCode: 2,
    },
    {
      argv: ['--field-selector', 'phase[0=x'],
      message:
        '--field-selector: position 9: expected ] but found the end; for example --field-selector phase=Running',
      exitCode: 2,
    },
    {
      argv: ['-o', 'manifest'],
      message:
        '-o manifest applies to workloads, services, routes, configs and policies, not to replicas',
      exitCode: 2,
    },
    {
      argv: ['-A', '--sort-by', '.nope'],
      message: '--sort-by: no object has this field; -o json shows the fields of replicas',
      exitCode: 2,
    },
  ])('fails with $message for $argv', async ({ argv, message, exitCode }) => {
    expect(await get('replicas', ...argv)).toMatchObject({
      exitCode,
      stdout: '',
      stderr: `cloudlessctl: ${message}\n`,
    });
  });

  it('names the conditions that no replica meets', async () => {
    expect(await get('replicas', '-A', '--field-selector', 'phase=runing')).toMatchObject({
      exitCode: 0,
      stderr: 'no replicas with --field-selector phase=runing\n',
    });
  });

  it('names what is selected when there is no replica', async () => {
    expect(await get('replicas', '-n', 'none', '--node', 'n1')).toMatchObject({
      exitCode: 0,
      stderr: 'no replicas on node n1 in namespace none\n',
    });
  });
});

describe('cloudlessctl get namespaces', () => {
  it('lists the namespaces with the sums of their workloads', async () => {
    expect((await get('ns')).stdout).toBe(
      'NAME      WORKLOADS   READY\ndefault   1           2/2\nprod      1           1/10\n',
    );
    expect(await get('namespace', 'prd')).toMatchObject({
      exitCode: 3,
      stderr: 'cloudlessctl: namespace prd has no workload; did you mean prod?\n',
    });
  });
});

describe('the output formats of get', () => {
  it.each([
    { argv: ['wl', '-A', '-o', 'name'], stdout: 'default/web\nprod/shop\n' },
    { argv: ['nodes', '-o', 'name'], stdout: 'web1\nweb2\n' },
    { argv: ['wl', '-A', '-o', 'jsonpath={.items[*].name}'], stdout: 'web shop\n' },
    { argv: ['wl', '-A', '-o', 'jsonpath={.workloads[1].name}'], stdout: 'shop\n' },
    {
      argv: ['wl', 'prod/shop', '-o', 'jsonpath={.status.readyReplicas}/{.spec.replicas}'],
      stdout: '1/2\n',
    },
    {
      argv: ['wl', '-A', '-o', 'custom-columns=NAME:.name,IDS:.status.replicas[*].id,X:.x'],
      stdout:
        'NAME   IDS                                     X\n' +
        'web    00000000000000aa-1,00000000000000aa-2   <none>\n' +
        'shop   00000000000000bb-7,00000000000000bb-2   <none>\n',
    },
    { argv: ['ns', '--no-headers'], stdout: 'default   1   2/2\nprod      1   1/10\n' },
    {
      argv: ['wl', '-A', '--sort-by', 'status.desiredReplicas', '-o', 'name'],
      stdout: 'default/web\nprod/shop\n',
    },
    {
      argv: ['wl', '-A', '--field-selector', 'status.phase=Scheduling', '-o', 'name'],
      stdout: 'prod/shop\n',
    },
  ])('prints $stdout for $argv', async ({ argv, stdout }) => {
    expect(await get(...argv)).toMatchObject({ exitCode: 0, stdout, stderr: '' });
  });

  it.each([
    ['jsonpath', "--output jsonpath: write jsonpath='{.items[*].name}'"],
    ['jsonpath={.a', '--output jsonpath: position 4: expected } but found the end'],
    [
      'custom-columns=NAME',
      '--output custom-columns: expected HEADER:PATH, got "NAME"; for example custom-columns=NAME:.name,READY:.status.readyReplicas',
    ],
  ])('rejects -o %s before it connects', async (format, message) => {
    expect(await get('wl', '-o', format)).toMatchObject({
      exitCode: 2,
      servers: [],
      stderr: `cloudlessctl: ${message}\n`,
    });
  });
});

describe('names that do not exist', () => {
  it.each([
    { argv: ['describe', 'wbe'], hint: 'workload "default/wbe" not found; did you mean web?' },
    {
      argv: ['describe', 'shop'],
      hint: 'workload "default/shop" not found; did you mean prod/shop in the namespace prod?',
    },
    {
      argv: ['get', 'wl', 'shpo'],
      hint: 'workload "default/shpo" not found; did you mean prod/shop?',
    },
    { argv: ['describe', 'node', 'wbe1'], hint: 'node "wbe1" not found; did you mean web1?' },
  ])('get a suggestion with $argv', async ({ argv, hint }) => {
    expect(await runCli(argv, { coordinator })).toMatchObject({
      exitCode: 3,
      stderr: `cloudlessctl: ${hint}\n`,
    });
  });

  it.each([
    ['deployments', 'workloads'],
    ['po', 'replicas'],
    ['sts', 'workloads'],
    ['endpoints', 'cloudlessctl network endpoint list'],
  ])('name what is here instead of %s', async (foreign, here) => {
    expect((await get(foreign)).stderr).toContain(`; here: ${here}\n`);
  });
});

describe('cloudlessctl events', () => {
  const listing = (requests: ListEventsRequest[]): CliOptions => ({
    coordinator: {
      ...coordinator,
      listEvents: (request) => {
        requests.push(request);
        return {};
      },
    },
  });

  it('sends the filters to the coordinator', async () => {
    const requests: ListEventsRequest[] = [];
    const argv = ['events', '--since', '10m', '--type', 'scheduling,rollout'];
    const more = ['--reason', 'ReplicaPlaced', '--severity', 'warning', '--severity', 'Error'];
    await runCli([...argv, ...more], listing(requests));
    expect(requests).toMatchObject([
      {
        since: { seconds: BigInt(Date.UTC(2025, 11, 31, 23, 50) / 1000) },
        categories: [1, 2],
        reasons: ['ReplicaPlaced'],
        severities: [1, 2],
      },
    ]);
  });

  it.each([
    { argv: ['--workload', 'web'], stderr: 'no events\n', exitCode: 0 },
    {
      argv: ['--workload', 'nope'],
      stderr: 'cloudlessctl: workload "default/nope" not found (NOT_FOUND)\n',
      exitCode: 3,
    },
    {
      argv: ['--node', 'wbe1'],
      stderr: 'cloudlessctl: node "wbe1" not found; did you mean web1?\n',
      exitCode: 3,
    },
    {
      argv: ['--type', 'rolout'],
      stderr:
        'cloudlessctl: --type: expected one of Membership, Scheduling, Rollout, Workload, Security, System, Audit, got "rolout"; did you mean Rollout?\n',
      exitCode: 2,
    },
    {
      argv: ['--audit', '--type', 'rollout'],
      stderr: 'cloudlessctl: give --audit or --type, not both\n',
      exitCode: 2,
    },
  ])('without an event prints $stderr for $argv', async ({ argv, stderr, exitCode }) => {
    expect(await runCli(['events', ...argv], listing([]))).toMatchObject({ exitCode, stderr });
  });

  it('without an event of a node that the user may not read prints a notice', async () => {
    const refusal = new ConnectError(
      'user/ada does not have the role viewer',
      Code.PermissionDenied,
    );
    const coordinator = {
      listEvents: () => ({}),
      getNode: () => {
        throw refusal;
      },
    };
    expect(await runCli(['events', '--node', 'web1'], { coordinator })).toMatchObject({
      exitCode: 0,
      stderr:
        'whether the node web1 exists is not known, because user/ada does not have the role viewer\nno events\n',
    });
  });
});
