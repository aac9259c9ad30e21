import { timestampFromMs } from '@bufbuild/protobuf/wkt';
import { NodePlan_Action, WorkloadPlan_Action } from '@cloudless/api';
import { NOW_MS, aNode, aWorkload, runCli, type FakeCoordinator } from '../../testing/run-cli.js';

const ID = '00112233aabbccdd';
const times = {
  createdAt: timestampFromMs(NOW_MS - 300_000),
  expiresAt: timestampFromMs(NOW_MS + 3_300_000),
};

describe('plan list', () => {
  it('lists the plans of all pages with age, state, warnings and changes', async () => {
    const coordinator: FakeCoordinator = {
      listPlans: ({ pageToken }) =>
        pageToken === ''
          ? {
              plans: [{ id: ID, ...times, summary: 'scale default/web to 5', warnings: 2 }],
              nextPageToken: 'next',
            }
          : {
              plans: [
                {
                  id: ID.replaceAll('0', '9'),
                  ...times,
                  executedAt: timestampFromMs(NOW_MS - 60_000),
                  summary: 'drain node n1',
                },
              ],
            },
    };
    expect(await runCli(['plan', 'list'], { coordinator })).toMatchObject({
      exitCode: 0,
      stdout: [
        'ID                 AGE   STATE              WARNINGS   CHANGES',
        '00112233aabbccdd   5m    expires in 55m     2          scale default/web to 5',
        '99112233aabbccdd   5m    executed 60s ago   0          drain node n1',
        '',
      ].join('\n'),
    });
    const { stdout } = await runCli(['plan', 'list', '-o', 'json'], { coordinator });
    expect(JSON.parse(stdout)).toMatchObject({ plans: [{ id: ID, warnings: 2 }, {}] });
  });

  it('says how plans are made when there are none', async () => {
    const coordinator: FakeCoordinator = { listPlans: () => ({}) };
    expect(await runCli(['plan', 'list'], { coordinator })).toMatchObject({
      exitCode: 0,
      stderr: 'no plans: --plan stores the change of a command for an hour\n',
    });
  });
});

describe('plan show', () => {
  it('shows the changes, the age and the command that executes the plan', async () => {
    const coordinator: FakeCoordinator = {
      getPlan: ({ id }) => ({
        id,
        ...times,
        nodes: [
          { nodeId: 'n1', action: NodePlan_Action.DRAIN, replicas: 3 },
          {
            nodeId: 'n2',
            action: NodePlan_Action.REMOVE,
            warnings: [{ message: '1 replica on node n2 counts as lost' }],
          },
          {
            nodeId: 'n3',
            action: NodePlan_Action.UPDATE,
            changes: [{ path: 'labels["disk"]', before: '', after: '"ssd"' }],
          },
        ],
        workloads: [
          {
            namespace: 'default',
            name: 'web',
            action: WorkloadPlan_Action.MOVE,
            placements: [{ nodeId: 'n4' }],
            totalPlacements: 1,
          },
        ],
      }),
    };
    expect(await runCli(['plan', 'show', ID], { coordinator })).toMatchObject({
      exitCode: 0,
      stdout: [
        'node n1: drain: 3 replicas to move',
        'node n2: remove',
        '  warning: 1 replica on node n2 counts as lost',
        'node n3: update',
        '  labels["disk"]: (absent) -> "ssd"',
        'workload default/web: move replicas',
        '  new replicas on: n4 (1)',
        `plan ${ID}, created 5m ago, kept until 2026-01-01T00:55:00Z: cloudlessctl plan execute ${ID}`,
        '',
      ].join('\n'),
    });
  });

  it.each(['show', 'execute'])('rejects a text that is no plan id with %s', async (command) => {
    expect(await runCli(['plan', command, 'web'], {})).toMatchObject({
      exitCode: 2,
      stderr: expect.stringContaining('"web" is not a plan id: expected 16 hex digits'),
    });
  });
});

describe('plan execute', () => {
  it('executes the plan and prints what happens to each workload and node', async () => {
    const coordinator: FakeCoordinator = {
      executePlan: () => ({
        workloads: [aWorkload({ deletionRequestedAt: timestampFromMs(NOW_MS) })],
        nodes: [aNode({ cordoned: true }), aNode({ id: 'web2' })],
        removedNodeIds: ['web3'],
      }),
    };
    expect(await runCli(['plan', 'execute', ID], { coordinator })).toMatchObject({
      exitCode: 0,
      stdout:
        'workload default/web: is being deleted\nnode web1: cordoned\nnode web2: updated\nnode web3: removed\n',
    });
  });
});
