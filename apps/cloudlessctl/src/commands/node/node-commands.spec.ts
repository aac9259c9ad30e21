import { Taint_Effect } from '@cloudless/api';
import type { UpdateNodeRequest } from '@cloudless/api';
import { aNode, runCli } from '../../testing/run-cli.js';

describe('cloudlessctl node', () => {
  it('lists nodes and describes a node', async () => {
    const coordinator = {
      listNodes: () => ({ nodes: [aNode({ cordoned: true })] }),
      getNode: () => aNode(),
    };
    expect((await runCli(['get', 'nodes'], { coordinator })).stdout).toBe(
      'NAME   STATUS           ZONE   REPLICAS   CPU          MEMORY      AGE\nweb1   Ready,Cordoned   a      2/110      250m/3500m   128Mi/7Gi   3d\n',
    );
    expect(
      (
        await runCli(['node', 'describe', 'web1'], {
          coordinator: { ...coordinator, listEvents: () => ({}), listWorkloads: () => ({}) },
        })
      ).stdout,
    ).toContain('Reliability:  100.0 % of the last hour');
  });

  it.each([
    ['cordon', 'cordoned'],
    ['uncordon', 'uncordoned'],
    ['drain', 'draining'],
  ])('%s reports the node as %s', async (verb, change) => {
    const coordinator = {
      cordonNode: () => aNode(),
      uncordonNode: () => aNode(),
      drainNode: () => aNode(),
    };
    expect(await runCli(['node', verb, 'web1'], { coordinator })).toMatchObject({
      exitCode: 0,
      stdout: `node web1: ${change}\n`,
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

  it('shows taints with and without a value in wide tables', async () => {
    const taints = [
      { key: 'gpu', value: 'yes', effect: Taint_Effect.NO_SCHEDULE },
      { key: 'old', value: '', effect: Taint_Effect.NO_EXECUTE },
    ];
    const coordinator = { listNodes: () => ({ nodes: [{ id: 'web1', taints }] }) };
    expect((await runCli(['get', 'nodes', '-o', 'wide'], { coordinator })).stdout).toContain(
      ' gpu=yes:NoSchedule,old:NoExecute ',
    );
  });

  it.each([
    { words: ['nope-'], missing: 'nope' },
    { words: ['gpu:NO_EXECUTE-'], missing: 'gpu:NO_EXECUTE' },
    { words: ['gpu-', 'x=y:NO_SCHEDULE', 'nope-'], missing: 'nope' },
  ])(
    'refuses to remove a taint that the node does not have: $words',
    async ({ words, missing }) => {
      const taints = [{ key: 'gpu', value: 'yes', effect: Taint_Effect.NO_SCHEDULE }];
      const coordinator = { getNode: () => aNode({ taints }) };
      expect(await runCli(['node', 'taint', 'web1', ...words], { coordinator })).toMatchObject({
        exitCode: 3,
        stdout: '',
        stderr: `cloudlessctl: node web1 has no taint "${missing}"; its taints: gpu=yes:NoSchedule\n`,
      });
    },
  );

  it('names the change of labels', async () => {
    const coordinator = { updateNode: () => aNode() };
    expect((await runCli(['node', 'label', 'web1', 'disk-'], { coordinator })).stdout).toBe(
      'node web1: unlabelled\n',
    );
  });

  it('sends the changes of label and taint, and the force flag of remove', async () => {
    const updates: UpdateNodeRequest[] = [];
    const forced: boolean[] = [];
    const taints = [
      { key: 'old', effect: Taint_Effect.NO_SCHEDULE },
      { key: 'a', effect: Taint_Effect.NO_SCHEDULE },
      { key: 'spot', value: 'ending', effect: Taint_Effect.NO_EXECUTE },
    ];
    const coordinator = {
      getNode: () => aNode({ taints }),
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
      [
        'node',
        'taint',
        'web1',
        'gpu=yes:NO_SCHEDULE',
        'x:NoExecute',
        'old-',
        'a:no-schedule-',
        'spot=ending:NO_EXECUTE-',
      ],
      { coordinator },
    );
    await runCli(['node', 'remove', 'web1', '--force'], { coordinator });
    expect(updates).toMatchObject([
      { nodeId: 'web1', setLabels: { disk: 'ssd' }, removeLabels: ['old'] },
      {
        nodeId: 'web1',
        setTaints: [
          { key: 'gpu', value: 'yes', effect: Taint_Effect.NO_SCHEDULE },
          { key: 'x', value: '', effect: Taint_Effect.NO_EXECUTE },
        ],
        removeTaints: ['old', 'a:NO_SCHEDULE', 'spot:NO_EXECUTE'],
      },
    ]);
    expect(forced).toEqual([true]);
  });
});
