import {
  NodePlan_Action as NodeAction,
  PlanWarning_Kind,
  Taint_Effect,
  WorkloadPlan_Action as WorkloadAction,
} from '@cloudless/api';
import { ApiTestBed } from '../testing/api-test-bed.js';

let bed: ApiTestBed;
beforeEach(async () => {
  bed = await ApiTestBed.open();
  await bed.client.createWorkload({ name: 'web', spec: { command: ['one'] } });
});
afterEach(() => bed.stop());

const HOUR_MS = 3_600_000;
const scale = (replicas: number) => ({
  change: { case: 'scale' as const, value: { name: 'web', replicas } },
});

describe('PlanHandlers', () => {
  it('changes the workload only when a plan is executed, and executes a plan once', async () => {
    const { id } = await bed.client.createPlan({ changes: [scale(5)] });
    expect((await bed.client.getWorkload({ name: 'web' })).generation).toBe(1n);
    const { workloads } = await bed.client.executePlan({ id });
    expect(workloads[0]?.spec?.replicas).toBe(5);
    expect((await bed.client.getPlan({ id })).executedAt).toBeDefined();
    await expect(bed.client.executePlan({ id })).rejects.toThrow('was already executed at');
  });

  it('rejects the execution of a plan whose outcome has changed since its creation', async () => {
    const { id } = await bed.client.createPlan({ changes: [scale(5)] });
    await bed.client.scaleWorkload({ name: 'web', replicas: 3 });
    await expect(bed.client.executePlan({ id })).rejects.toThrow(
      'is outdated: default/web: generation 1 was planned, it is 2 now; create a new plan',
    );
  });

  it('rejects an unknown plan as not found, and a plan after one hour as expired', async () => {
    await expect(bed.client.getPlan({ id: '0'.repeat(16) })).rejects.toThrow('not found');
    const { id } = await bed.client.createPlan({ changes: [scale(5)] });
    await bed.clock.advance(HOUR_MS - 1);
    expect((await bed.client.getPlan({ id })).id).toBe(id);
    await bed.clock.advance(1);
    await expect(bed.client.executePlan({ id })).rejects.toThrow('expired at');
  });

  it('rejects a plan with two changes of one workload, and a plan with a request id in a change', async () => {
    await expect(bed.client.createPlan({ changes: [scale(1), scale(2)] })).rejects.toThrow(
      'at most one change of each workload and node',
    );
    const change = { case: 'scale' as const, value: { name: 'web', replicas: 1, requestId: 'r' } };
    await expect(bed.client.createPlan({ changes: [{ change }] })).rejects.toThrow('request_id');
  });

  it('predicts without storing a plan or an audit record when only validation is asked for', async () => {
    const { revision } = bed.state.view();
    const plan = await bed.client.createPlan({ changes: [scale(5)], validateOnly: true });
    expect(plan).toMatchObject({ id: '', workloads: [{ name: 'web' }] });
    expect(plan.expiresAt).toBeUndefined();
    expect(bed.state.view().revision).toBe(revision);
    await expect(
      bed.client.createPlan({
        changes: [{ change: { case: 'scale', value: { name: 'no', replicas: 1 } } }],
        validateOnly: true,
      }),
    ).rejects.toThrow('workload "default/no" not found');
  });

  it('lists plans that have not expired, newest first, one page a call', async () => {
    const first = await bed.client.createPlan({ changes: [scale(5)] });
    await bed.clock.advance(1_000);
    await bed.putNode('node-1');
    const drain = { change: { case: 'drain' as const, value: { nodeId: 'node-1' } } };
    const second = await bed.client.createPlan({ changes: [scale(6), drain] });
    await bed.client.executePlan({ id: second.id });
    const page = await bed.client.listPlans({ pageSize: 1 });
    expect(page.plans).toMatchObject([
      { id: second.id, summary: 'scale default/web to 6, drain node node-1', warnings: 0 },
    ]);
    expect(page.plans[0]?.executedAt).toBeDefined();
    const { plans, nextPageToken } = await bed.client.listPlans({ pageToken: page.nextPageToken });
    expect(plans).toMatchObject([{ id: first.id, summary: 'scale default/web to 5' }]);
    expect(nextPageToken).toBe('');
    await bed.clock.advance(HOUR_MS);
    expect((await bed.client.listPlans({})).plans).toEqual([]);
  });

  it('deletes, creates and updates workloads', async () => {
    await bed.client.createWorkload({ name: 'old', spec: { command: ['one'] } });
    const changes = [
      { change: { case: 'delete' as const, value: { name: 'old' } } },
      { change: { case: 'create' as const, value: { name: 'new', spec: { command: ['x'] } } } },
      { change: { case: 'update' as const, value: { name: 'web', spec: { args: ['y'] } } } },
    ];
    const { id } = await bed.client.createPlan({ changes });
    const { workloads } = await bed.client.executePlan({ id });
    expect(workloads.map(({ name }) => name)).toEqual(['old', 'new', 'web']);
    const view = bed.state.view();
    expect(view.workloadByName('default', 'old')?.value.deletionRequestedAt).toBeDefined();
    expect(view.workloadByName('default', 'new')).toBeDefined();
    expect(view.workloadByName('default', 'web')?.value.spec?.args).toEqual(['y']);
    expect(bed.events('WorkloadDeletionRequested')).toHaveLength(1);
  });

  it('rejects the creation of a workload that exists', async () => {
    const value = { name: 'web', spec: { command: ['x'] } };
    await expect(
      bed.client.createPlan({ changes: [{ change: { case: 'create', value } }] }),
    ).rejects.toThrow('already exists');
  });

  it('pauses a rollout, and rejects the resumption of a rollout that is not paused', async () => {
    const value = { name: 'web' };
    await expect(
      bed.client.createPlan({ changes: [{ change: { case: 'resume', value } }] }),
    ).rejects.toThrow('its rollout is not paused');
    const { id, workloads } = await bed.client.createPlan({
      changes: [{ change: { case: 'pause', value } }],
    });
    expect(workloads).toMatchObject([{ action: WorkloadAction.PAUSE }]);
    await bed.client.executePlan({ id });
    const uid = bed.state.view().workloadByName('default', 'web')?.value.uid ?? '';
    expect(bed.state.view().control(uid)?.value.pausedVersion).toBe(1);
  });

  it('cordons, uncordons and updates nodes, with the values that change', async () => {
    for (const id of ['a', 'b', 'c']) await bed.putNode(id, { cordoned: id === 'b' });
    const setTaints = [{ key: 'gpu', value: 'x', effect: Taint_Effect.NO_SCHEDULE }];
    const update = { nodeId: 'c', setLabels: { disk: 'ssd' }, setTaints, zone: 'z1' };
    const { id, nodes } = await bed.client.createPlan({
      changes: [
        { change: { case: 'cordon', value: { nodeId: 'a' } } },
        { change: { case: 'uncordon', value: { nodeId: 'b' } } },
        { change: { case: 'updateNode', value: update } },
      ],
    });
    expect(nodes).toMatchObject([
      { nodeId: 'a', action: NodeAction.CORDON, changes: [], warnings: [] },
      { nodeId: 'b', action: NodeAction.UNCORDON },
      {
        nodeId: 'c',
        action: NodeAction.UPDATE,
        changes: [
          { path: 'labels["disk"]', before: '', after: '"ssd"' },
          { path: 'taints["gpu:NO_SCHEDULE"]', before: '', after: '"x"' },
          { path: 'zone', before: '', after: '"z1"' },
        ],
      },
    ]);
    const executed = await bed.client.executePlan({ id });
    expect(executed.nodes.map((node) => `${node.id} ${node.cordoned}`)).toEqual([
      'a true',
      'b false',
      'c false',
    ]);
  });

  it('rejects the execution after a node got the planned state by another call', async () => {
    await bed.putNode('a');
    const { id } = await bed.client.createPlan({
      changes: [{ change: { case: 'cordon', value: { nodeId: 'a' } } }],
    });
    await bed.client.cordonNode({ nodeId: 'a' });
    await expect(bed.client.executePlan({ id })).rejects.toThrow(
      'is outdated: node a: it was to be cordoned, it would be left as it is now',
    );
  });

  it('removes a node with its replicas, with a warning, and forgets its live state', async () => {
    await bed.putNode('node-1');
    await bed.putReplica('w-0');
    const value = { nodeId: 'node-1', force: true };
    const { id, nodes } = await bed.client.createPlan({
      changes: [{ change: { case: 'removeNode', value } }],
    });
    expect(nodes).toMatchObject([
      {
        action: NodeAction.REMOVE,
        replicas: 1,
        warnings: [
          {
            kind: PlanWarning_Kind.NODE_HAS_REPLICAS,
            message: '1 replica on node node-1 counts as lost, and may still run there',
            replicas: 1,
          },
        ],
      },
    ]);
    expect(await bed.client.executePlan({ id })).toMatchObject({ removedNodeIds: ['node-1'] });
    expect(bed.state.view().node('node-1')).toBeUndefined();
    expect([...bed.state.view().replicasOn('node-1')]).toEqual([]);
  });

  it('rejects the removal of nodes with more replicas than one transaction can delete', async () => {
    for (const id of ['a', 'b']) await bed.putNode(id);
    for (let index = 0; index < 51; index += 1)
      await bed.putReplica(`w-${index}`, { nodeId: index % 2 === 0 ? 'a' : 'b' });
    const changes = ['a', 'b'].map((nodeId) => ({
      change: { case: 'removeNode' as const, value: { nodeId, force: true } },
    }));
    await expect(bed.client.createPlan({ changes })).rejects.toThrow(
      'nodes a, b have 51 replica records, and a plan can remove at most 50',
    );
  });

  it('rejects an invalid change with the path of its field in the proto', async () => {
    await bed.putNode('a');
    const value = { nodeId: 'a', removeTaints: ['x:NO'] };
    await expect(
      bed.client.createPlan({ changes: [{ change: { case: 'updateNode', value } }] }),
    ).rejects.toThrow('changes[0].update_node.remove_taints[0]: "NO" is not an effect');
  });

  it('rejects the confirmation of the loss of a node that is not lost', async () => {
    await bed.putNode('a');
    await expect(
      bed.client.createPlan({
        changes: [{ change: { case: 'confirmNodeLost', value: { nodeId: 'a' } } }],
      }),
    ).rejects.toThrow('not LOST');
  });
});
