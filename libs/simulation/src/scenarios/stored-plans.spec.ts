import { Code, ConnectError } from '@connectrpc/connect';
import {
  Rollout_Promotion as Promotion,
  Rollout_Strategy as Strategy,
  WorkloadPlan_Action as Action,
  WorkloadSpec_Mode as Mode,
  type Plan,
  type WorkloadPlan,
} from '@cloudless/api';
import type { ReplicaRecord } from '@cloudless/api/store';
import { createSeededRandom } from '@cloudless/base';
import { isLive } from '@cloudless/cluster-state';
import type { TestCluster } from '../test-cluster/test-cluster.js';
import { startCluster, createWeb, readWeb } from '../test-cluster/web-workload.js';

type Changes = Parameters<TestCluster['client']['createPlan']>[0]['changes'];

const plan = (cluster: TestCluster, ...changes: NonNullable<Changes>): Promise<Plan> =>
  cluster.complete(() => cluster.client.createPlan({ changes }));

const execute = (cluster: TestCluster, { id }: Pick<Plan, 'id'>, requestId = '') =>
  cluster.complete(() => cluster.client.executePlan({ id, requestId }));

const apply = (name: string, spec: object) => ({
  change: { case: 'apply' as const, value: { name, spec } },
});
const scale = (name: string, replicas: number) => ({
  change: { case: 'scale' as const, value: { name, replicas } },
});
const undo = (name: string, toVersion = 0) => ({
  change: { case: 'undo' as const, value: { name, toVersion } },
});
const restart = (name: string) => ({ change: { case: 'restart' as const, value: { name } } });
const drain = (nodeId: string, more: object = {}) => ({
  change: { case: 'drain' as const, value: { nodeId, ...more } },
});

const errorOf = async (
  call: Promise<unknown>,
): Promise<{ readonly code: string; readonly message: string }> => {
  try {
    await call;
  } catch (reason) {
    const { code, rawMessage } = ConnectError.from(reason);
    return { code: Code[code], message: rawMessage };
  }
  throw new Error('the call was not refused');
};

const onlyWorkload = ({ workloads: [first, ...others] }: Plan): WorkloadPlan => {
  if (first === undefined || others.length > 0)
    throw new Error(`the plan is about ${others.length + 1} workloads`);
  return first;
};
const describePlan = ({ steps }: WorkloadPlan): readonly string[] =>
  steps.map(({ description }) => description);
const countsOf = (nodeIds: readonly string[]): Record<string, number> => {
  const counts: Record<string, number> = {};
  for (const nodeId of [...nodeIds].sort()) counts[nodeId] = (counts[nodeId] ?? 0) + 1;
  return counts;
};
const countPlacements = ({ placements }: WorkloadPlan) =>
  countsOf(placements.map(({ nodeId }) => nodeId));

const QUICK = { minReadyDuration: { seconds: 0n } };

/** Starts four nodes and a ready workload `web`. */
async function startWithWeb(spec: object = {}): Promise<TestCluster> {
  const cluster = await startCluster(4);
  await createWeb(cluster, { rollout: QUICK, ...spec });
  await cluster.advance(1_000);
  return cluster;
}

describe('stored plan', () => {
  it('is executed with the spec, the version and the nodes that it shows', async () => {
    const cluster = await startWithWeb({
      replicas: 5,
      rollout: { ...QUICK, strategy: Strategy.BLUE_GREEN },
    });
    const made = await plan(cluster, apply('web', { args: ['new'] }));
    expect(made.id).toMatch(/^[0-9a-f]{16}$/);
    expect(onlyWorkload(made)).toMatchObject({
      action: Action.UPDATE,
      newVersion: true,
      generation: 1n,
      minAvailable: 4,
      unplaced: 0,
    });
    expect(await readWeb(cluster)).toMatchObject({ generation: 1n });
    const { workloads } = await execute(cluster, made);
    expect(workloads).toMatchObject([{ name: 'web', generation: 2n, spec: { args: ['new'] } }]);
    await cluster.advance(20_000, 50);
    const { status } = await readWeb(cluster);
    expect(status).toMatchObject({ readyReplicas: 5, updatedReplicas: 5, version: 2 });
    expect(countsOf(status?.replicas.map(({ nodeId }) => nodeId) ?? [])).toEqual(
      countPlacements(onlyWorkload(made)),
    );
    const kept = await cluster.complete(() => cluster.client.getPlan({ id: made.id }));
    expect(kept.executedAt).toBeDefined();
    expect(kept).toEqual({ ...made, executedAt: kept.executedAt });
  });

  it('is executed once; a retry with the same request id gets the same response', async () => {
    const cluster = await startWithWeb();
    const made = await plan(cluster, scale('web', 4));
    const first = await execute(cluster, made, 'r1');
    expect(await execute(cluster, made, 'r1')).toEqual(first);
    expect(await readWeb(cluster)).toMatchObject({ generation: 2n });
    expect(await errorOf(execute(cluster, made, 'r2'))).toEqual({
      code: 'FailedPrecondition',
      message: expect.stringMatching(
        new RegExp(`^plan "${made.id}" was already executed at .*Z; create a new plan$`),
      ),
    });
  });

  it('expires after an hour, even before the janitor removes its record', async () => {
    const cluster = await startWithWeb();
    const made = await plan(cluster, scale('web', 4));
    await cluster.advance(3_600_000 - 60_000, 60_000);
    expect((await cluster.complete(() => cluster.client.getPlan({ id: made.id }))).id).toBe(
      made.id,
    );
    await cluster.advance(61_000, 1_000);
    expect(await errorOf(execute(cluster, made))).toMatchObject({
      code: 'NotFound',
      message: expect.stringMatching(
        /^plan "[0-9a-f]+" (expired at .*|not found: plans are stored for one hour); create a new plan$/,
      ),
    });
    await cluster.advance(120_000, 1_000);
    expect([...cluster.state.view().plans()]).toEqual([]);
  });

  it('appears in the audit log when it is created, executed and refused, and is the cause of its changes', async () => {
    const cluster = await startWithWeb();
    const [valid, outdated] = [
      await plan(cluster, scale('web', 4)),
      await plan(cluster, scale('web', 5)),
    ];
    await execute(cluster, valid, 'r1');
    await errorOf(execute(cluster, outdated));
    const events = cluster.state.view().events();
    const audited = events.filter(
      ({ reason }) => reason === 'CreatePlan' || reason === 'ExecutePlan',
    );
    expect(audited.map(({ reason, audit }) => `${reason} ${audit?.result}`)).toEqual([
      'CreatePlan ok',
      'CreatePlan ok',
      'ExecutePlan ok',
      'ExecutePlan aborted',
    ]);
    const scaled = events.find(({ reason }) => reason === 'WorkloadScaled');
    expect(scaled).toMatchObject({ causeId: audited[2]?.id, requestId: 'r1', workload: 'web' });
  });

  it('is not found by another id', async () => {
    const cluster = await startWithWeb();
    expect(await errorOf(execute(cluster, { id: '0123456789abcdef' }))).toEqual({
      code: 'NotFound',
      message:
        'plan "0123456789abcdef" not found: plans are stored for one hour; create a new plan',
    });
  });
});

describe('execution of an outdated plan', () => {
  it.each<{
    name: string;
    meanwhile: (cluster: TestCluster, made: Plan) => Promise<unknown>;
    outdatedReason: string;
  }>([
    {
      name: 'the workload was updated',
      meanwhile: (cluster) =>
        cluster.complete(() =>
          cluster.client.updateWorkload({ name: 'web', spec: { args: ['other'] } }),
        ),
      outdatedReason: 'default/web: generation 1 was planned, it is 2 now',
    },
    {
      name: 'the workload is being deleted',
      meanwhile: (cluster) => {
        for (const agent of cluster.agents.values()) agent.obeysStops = false;
        return cluster.complete(() => cluster.client.deleteWorkload({ name: 'web' }));
      },
      outdatedReason: 'workload "default/web" is being deleted',
    },
    {
      name: 'a replica is no longer ready',
      meanwhile: async (cluster) => {
        const [replica] = (await readWeb(cluster)).status?.replicas ?? [];
        cluster.agents.get(replica?.nodeId ?? '')?.change(replica?.id ?? '', { ready: false });
        await cluster.advance(100);
      },
      outdatedReason: 'default/web: step 1 was to leave 3 ready, it would leave 2 now',
    },
    {
      name: 'a node no longer accepts replicas',
      meanwhile: (cluster, made) => {
        const [nodeId = ''] = Object.keys(countPlacements(onlyWorkload(made)));
        return cluster.complete(() => cluster.client.cordonNode({ nodeId }));
      },
      outdatedReason: 'default/web: 1 replica was to go to node-1, now 0',
    },
  ])('is refused because $name', async ({ meanwhile, outdatedReason }) => {
    const cluster = await startWithWeb({ replicas: 3 });
    const made = await plan(cluster, apply('web', { args: ['new'] }));
    await meanwhile(cluster, made);
    const before = await readWeb(cluster);
    expect(await errorOf(execute(cluster, made))).toEqual({
      code: 'Aborted',
      message: `plan "${made.id}" is outdated: ${outdatedReason}; create a new plan`,
    });
    expect((await readWeb(cluster)).generation).toBe(before.generation);
  });

  it('is refused because the workload exists now', async () => {
    const cluster = await startCluster(2);
    const made = await plan(cluster, apply('web', { command: ['serve'], args: ['mine'] }));
    expect(onlyWorkload(made)).toMatchObject({ action: Action.CREATE, generation: 0n });
    await createWeb(cluster);
    const { message } = await errorOf(execute(cluster, made));
    expect(message).toContain('default/web: it was to be created, it would be updated now');
  });

  it('with two changes applies neither when one is outdated', async () => {
    const cluster = await startWithWeb();
    const made = await plan(
      cluster,
      apply('web', { replicas: 4 }),
      apply('other', { command: ['serve'] }),
    );
    await cluster.complete(() =>
      cluster.client.createWorkload({ name: 'other', spec: { command: ['mine'] } }),
    );
    expect(await errorOf(execute(cluster, made))).toMatchObject({ code: 'Aborted' });
    expect((await readWeb(cluster)).spec?.replicas).toBe(3);
  });

  it('is refused when a target node changes during the commit', async () => {
    let delaysMs: number[] = [];
    const cluster = await startCluster(4, { commitDelayMs: () => delaysMs.shift() ?? 0 });
    await createWeb(cluster, { rollout: QUICK });
    await cluster.advance(1_000);
    const made = await plan(cluster, apply('web', { args: ['new'] }));
    const [target = ''] = Object.keys(countPlacements(onlyWorkload(made)));
    delaysMs = [50, 0];
    const executing = execute(cluster, made).then(
      () => 'executed',
      (reason: unknown) => ConnectError.from(reason).rawMessage,
    );
    await cluster.complete(() => cluster.client.cordonNode({ nodeId: target }));
    expect(await executing).toContain(`1 replica was to go to ${target}, now 0`);
    expect((await readWeb(cluster)).generation).toBe(1n);
  });

  it('is refused when the readiness of a replica changes during the commit', async () => {
    let delaysMs: number[] = [];
    const cluster = await startCluster(4, { commitDelayMs: () => delaysMs.shift() ?? 0 });
    const [replica] =
      (
        await createWeb(cluster, { rollout: QUICK }).then(async () => {
          await cluster.advance(1_000);
          return readWeb(cluster);
        })
      ).status?.replicas ?? [];
    const made = await plan(cluster, apply('web', { args: ['new'] }));
    delaysMs = [50, 0];
    const executing = execute(cluster, made).then(
      () => 'executed',
      (reason: unknown) => ConnectError.from(reason).rawMessage,
    );
    cluster.agents.get(replica?.nodeId ?? '')?.change(replica?.id ?? '', { ready: false });
    await cluster.advance(200);
    expect(await executing).toContain('step 1 was to leave 3 ready, it would leave 2 now');
  });

  it('is not refused for unrelated changes', async () => {
    const cluster = await startWithWeb();
    const made = await plan(cluster, apply('web', { args: ['new'] }));
    await cluster.complete(() =>
      cluster.client.createWorkload({ name: 'other', namespace: 'far', spec: { command: ['x'] } }),
    );
    await cluster.complete(() =>
      cluster.client.updateNode({ nodeId: 'node-2', setLabels: { a: 'b' } }),
    );
    await cluster.advance(3_000);
    expect((await execute(cluster, made)).workloads).toMatchObject([
      { name: 'web', generation: 2n },
    ]);
  });
});

describe('plan of several changes', () => {
  it('is validated like the single calls, and is rejected with a request id or two changes of one object', async () => {
    const cluster = await startWithWeb();
    const value = { name: 'web', replicas: 2, requestId: 'r' };
    expect(
      await errorOf(
        plan(cluster, { change: { case: 'scale', value } }, restart('web'), {
          change: { case: undefined },
        }),
      ),
    ).toEqual({
      code: 'InvalidArgument',
      message:
        'changes[0].scale.request_id: must be empty: the changes of a plan are made together; pass the id to ExecutePlan; ' +
        'changes[1].restart: changes[0] is about the workload default/web too; a plan contains at most one change of each workload and node; ' +
        'changes[2]: is empty: set one change, such as apply, scale, delete or drain',
    });
    expect(await errorOf(plan(cluster, scale('gone', 2)))).toEqual({
      code: 'NotFound',
      message: 'workload "default/gone" not found',
    });
    expect(await errorOf(plan(cluster, drain('gone')))).toMatchObject({
      code: 'NotFound',
      message: 'node "gone" not found',
    });
    expect(await errorOf(plan(cluster, undo('web')))).toMatchObject({
      code: 'FailedPrecondition',
    });
    expect(
      await errorOf(plan(cluster, scale('web', 2), apply('new', {}), apply('bad', {}))),
    ).toMatchObject({
      code: 'InvalidArgument',
      message: expect.stringMatching(
        /^changes\[1\]\.apply\.spec\S*: .*; changes\[2\]\.apply\.spec/,
      ),
    });
  });

  it('predicts each change on the state that the earlier changes leave', async () => {
    const small = { capacity: { cpuMillis: 1_000, memoryBytes: 8n << 30n } };
    const cluster = await startCluster(0);
    await cluster.addNode('node-1', small);
    const half = { command: ['serve'], replicas: 1, resources: { requests: { cpuMillis: 600 } } };
    const made = await plan(cluster, apply('one', half), apply('two', half));
    expect(made.workloads).toMatchObject([
      { name: 'one', unplaced: 0, placements: [{ nodeId: 'node-1' }], warnings: [] },
      {
        name: 'two',
        unplaced: 1,
        placements: [],
        warnings: [expect.stringMatching(/^1 replica would find no node: /)],
      },
    ]);
    await execute(cluster, made);
    await cluster.advance(2_000);
    const ready = async (name: string) =>
      (await cluster.complete(() => cluster.client.getWorkload({ name }))).status?.readyReplicas;
    expect([await ready('one'), await ready('two')]).toEqual([1, 0]);
  });

  it('creates, scales, restarts and drains in one transaction', async () => {
    const cluster = await startWithWeb();
    for (const name of ['api', 'job']) {
      await cluster.complete(() =>
        cluster.client.createWorkload({ name, spec: { command: ['serve'], rollout: QUICK } }),
      );
    }
    await cluster.advance(1_000);
    const made = await plan(
      cluster,
      apply('new', { command: ['serve'] }),
      scale('api', 2),
      restart('job'),
      drain('node-3'),
    );
    const commits: string[][] = [];
    const unsubscribe = cluster.state.subscribe((changes) => {
      commits.push(
        changes.map(({ kind }) => kind).filter((kind) => kind === 'workload' || kind === 'node'),
      );
    });
    const done = await execute(cluster, made);
    unsubscribe();
    expect(commits.find((kinds) => kinds.length > 0)?.sort()).toEqual([
      'node',
      'workload',
      'workload',
      'workload',
    ]);
    expect(commits.flat().filter((kind) => kind === 'workload')).toHaveLength(3);
    expect(done.workloads.map(({ name, generation }) => `${name} ${generation}`)).toEqual([
      'new 1',
      'api 2',
      'job 2',
    ]);
    expect(done.nodes).toMatchObject([{ id: 'node-3', draining: true, cordoned: true }]);
    await cluster.advance(20_000, 50);
    expect(
      [...cluster.state.view().replicasOn('node-3')].filter(({ value }) => value.phase <= 4),
    ).toEqual([]);
  });
});

describe('plan content', () => {
  it('of a drain shows the target nodes by workload and the lowest ready count', async () => {
    const cluster = await startWithWeb({ replicas: 4 });
    const made = await plan(cluster, drain('node-1'));
    expect(onlyWorkload(made)).toMatchObject({
      action: Action.MOVE,
      changes: [],
      lowestReady: 3,
      minAvailable: 3,
      warnings: [],
    });
    expect(describePlan(onlyWorkload(made))).toEqual([
      'create 1 of version 1',
      'stop 1 of version 1',
    ]);
    await execute(cluster, made);
    await cluster.advance(10_000, 50);
    const { status } = await readWeb(cluster);
    const nodeIds = status?.replicas.map(({ nodeId }) => nodeId) ?? [];
    expect(countsOf(nodeIds)).toEqual({
      'node-2': 1,
      'node-3': 1,
      'node-4': 1,
      ...countPlacements(onlyWorkload(made)),
      ...addOne(countPlacements(onlyWorkload(made))),
    });
  });

  it('of a drain of all nodes reports that it would not complete, and of a forced one how far it goes below min_available', async () => {
    const cluster = await startCluster(1);
    await createWeb(cluster, { rollout: QUICK });
    await cluster.advance(1_000);
    const stuck = onlyWorkload(await plan(cluster, drain('node-1')));
    expect(stuck.warnings).toEqual([
      expect.stringMatching(
        /^the drain of node-1 would not finish: 3 replicas would find no node: being drained: 1 of 1 nodes$/,
      ),
    ]);
    const forced = onlyWorkload(await plan(cluster, drain('node-1', { force: true })));
    expect(forced.lowestReady).toBe(0);
    expect(forced.warnings[0]).toBe(
      'the drain is forced: as few as 0 would be ready, and min_available is 2',
    );
  });

  it('of an undo and of a restart names the operation', async () => {
    const cluster = await startWithWeb({ replicas: 1 });
    await cluster.complete(() =>
      cluster.client.updateWorkload({ name: 'web', spec: { args: ['two'] } }),
    );
    await cluster.advance(10_000, 50);
    const back = onlyWorkload(await plan(cluster, undo('web')));
    expect(back.changes).toMatchObject([{ path: 'args', before: '["two"]', after: '' }]);
    expect(describePlan(back)).toEqual(['create 1 of version 3', 'stop 1 of version 2']);
    const again = await plan(cluster, restart('web'));
    expect(onlyWorkload(again).changes).toMatchObject([{ path: 'restarted_at', before: '' }]);
    await cluster.advance(5_000);
    await execute(cluster, again);
    expect((await readWeb(cluster)).status?.versions.map(({ cause }) => cause)).toEqual([
      '',
      '',
      'restart',
    ]);
  });

  it('of RECREATE warns that min_available cannot be kept', async () => {
    const cluster = await startWithWeb({
      replicas: 2,
      rollout: { ...QUICK, strategy: Strategy.RECREATE, minAvailable: 2 },
    });
    const made = onlyWorkload(await plan(cluster, apply('web', { args: ['new'] })));
    expect(made.warnings).toEqual([
      'min_available 2 cannot be kept: RECREATE stops all replicas first',
    ]);
    expect(made.lowestReady).toBe(0);
    expect(describePlan(made)).toEqual([
      'stop 1 of version 1',
      'stop 1 of version 1',
      'create 1 of version 2',
      'create 1 of version 2',
    ]);
  });

  it('of BLUE_GREEN waits for the promotion, switches, and keeps the previous version for pause_duration', async () => {
    const rollout = {
      ...QUICK,
      strategy: Strategy.BLUE_GREEN,
      promotion: Promotion.MANUAL,
      pauseDuration: { seconds: 600n },
    };
    const cluster = await startWithWeb({ replicas: 2, rollout });
    const made = onlyWorkload(await plan(cluster, apply('web', { args: ['new'] })));
    expect(describePlan(made)).toEqual([
      'create 1 of version 2',
      'create 1 of version 2',
      'wait until promoted',
      'switch to version 2',
      'keep version 1 for 10m',
      'stop 1 of version 1',
      'stop 1 of version 1',
    ]);
    expect(made).toMatchObject({ lowestReady: 2, highestLive: 4, warnings: [] });
  });

  it('of a canary stops at each step', async () => {
    const steps = [
      { replicas: 1, promotion: Promotion.MANUAL },
      { percent: 50, wait: { seconds: 30n } },
    ];
    const cluster = await startWithWeb({ replicas: 4, rollout: { ...QUICK, steps } });
    const made = onlyWorkload(await plan(cluster, apply('web', { args: ['new'] })));
    const one = ['create 1 of version 2', 'stop 1 of version 1'];
    expect(describePlan(made)).toEqual([
      ...one,
      'wait until promoted',
      ...one,
      'wait 30s',
      ...one,
      ...one,
    ]);
    expect(made).toMatchObject({ lowestReady: 3, highestLive: 5 });
  });

  it('of a waiting canary does not depend on how long it has waited', async () => {
    const steps = [{ replicas: 1, wait: { seconds: 600n } }];
    const cluster = await startWithWeb({ replicas: 3, rollout: { ...QUICK, steps } });
    await cluster.complete(() =>
      cluster.client.updateWorkload({ name: 'web', spec: { args: ['two'] } }),
    );
    await cluster.advance(10_000, 50);
    const made = await plan(cluster, scale('web', 4));
    expect(describePlan(onlyWorkload(made)).filter((step) => step.startsWith('wait'))).toEqual([
      'wait 10m',
    ]);
    await cluster.advance(60_000, 500);
    expect((await execute(cluster, made)).workloads).toMatchObject([{ spec: { replicas: 4 } }]);
  });

  it('of a GLOBAL workload names the node of each replica', async () => {
    const cluster = await startCluster(3);
    const made = await plan(
      cluster,
      apply('web', { command: ['serve'], mode: Mode.GLOBAL, rollout: QUICK }),
    );
    expect(describePlan(onlyWorkload(made))).toEqual(
      ['node-1', 'node-2', 'node-3'].map((nodeId) => `create 1 of version 1 on ${nodeId}`),
    );
    expect(countPlacements(onlyWorkload(made))).toEqual({ 'node-1': 1, 'node-2': 1, 'node-3': 1 });
    await execute(cluster, made);
    await cluster.advance(2_000);
    expect((await readWeb(cluster)).status).toMatchObject({ readyReplicas: 3 });
    const away = onlyWorkload(await plan(cluster, drain('node-2')));
    expect(away).toMatchObject({ action: Action.MOVE, unplaced: 0, placements: [] });
    expect(describePlan(away)).toEqual(['stop 1 of version 1']);
  });

  it('of BLUE_GREEN without capacity for the whole set reports that and switches nothing', async () => {
    const cluster = await startCluster(0);
    await cluster.addNode('node-1', { capacity: { cpuMillis: 1_000, memoryBytes: 8n << 30n } });
    const resources = { requests: { cpuMillis: 300 } };
    await createWeb(cluster, {
      replicas: 2,
      resources,
      rollout: { ...QUICK, strategy: Strategy.BLUE_GREEN },
    });
    await cluster.advance(1_000);
    const made = onlyWorkload(await plan(cluster, apply('web', { args: ['new'] })));
    expect(made).toMatchObject({ unplaced: 2, placements: [], lowestReady: 2 });
    expect(made.warnings[0]).toMatch(
      /the new set of 2 replicas is placed as a whole, and 1 of them finds no node/,
    );
    expect(describePlan(made)).toEqual([
      'create 1 of version 2',
      'create 1 of version 2',
      expect.stringMatching(/^2 replicas wait: no node fits \(the new set of 2 replicas/),
    ]);
  });

  it('of a rolling update without capacity ends at the step where the update would wait', async () => {
    const cluster = await startCluster(0);
    await cluster.addNode('node-1', { capacity: { cpuMillis: 1_000, memoryBytes: 8n << 30n } });
    const resources = { requests: { cpuMillis: 500 } };
    await createWeb(cluster, { replicas: 2, resources, rollout: { ...QUICK, minAvailable: 2 } });
    await cluster.advance(1_000);
    const waiting = onlyWorkload(await plan(cluster, apply('web', { args: ['new'] })));
    expect(describePlan(waiting)).toEqual([
      'create 1 of version 2',
      expect.stringMatching(/^1 replica waits: no node fits \(/),
    ]);
    expect(waiting).toMatchObject({ unplaced: 1, lowestReady: 2 });
    const inPlace = { ...QUICK, minAvailable: 1, maxSurge: 0, maxUnavailable: 1 };
    const inPlacePlan = onlyWorkload(
      await plan(cluster, apply('web', { args: ['new'], rollout: inPlace })),
    );
    expect(inPlacePlan).toMatchObject({
      unplaced: 0,
      warnings: [],
      lowestReady: 1,
      highestLive: 2,
      totalPlacements: 2,
    });
  });

  it('of a large change shows the first 200 steps, and execution checks all placements', async () => {
    const cluster = await startCluster(4);
    await createWeb(cluster, {
      replicas: 150,
      resources: { requests: { cpuMillis: 1 } },
      rollout: QUICK,
    });
    await cluster.advance(3_000, 50);
    const made = await plan(cluster, apply('web', { args: ['new'] }));
    expect(onlyWorkload(made)).toMatchObject({ totalSteps: 300, totalPlacements: 150 });
    expect(onlyWorkload(made).steps).toHaveLength(200);
    await cluster.complete(() => cluster.client.cordonNode({ nodeId: 'node-4' }));
    expect(await errorOf(execute(cluster, made))).toMatchObject({ code: 'Aborted' });
    await cluster.complete(() => cluster.client.uncordonNode({ nodeId: 'node-4' }));
    expect((await execute(cluster, made)).workloads).toHaveLength(1);
  });

  it('during a rollout names the rollout that it supersedes', async () => {
    const cluster = await startWithWeb({ replicas: 3 });
    for (const agent of cluster.agents.values()) agent.onStart = 'unready';
    await cluster.complete(() =>
      cluster.client.updateWorkload({ name: 'web', spec: { args: ['two'] } }),
    );
    await cluster.advance(1_000);
    const made = onlyWorkload(await plan(cluster, apply('web', { args: ['three'] })));
    expect(made.warnings).toEqual([
      'the rollout of version 2 is not done; version 3 takes its place',
    ]);
  });
});

describe('plan execution', () => {
  it.each(Array.from({ length: 12 }, (_, seed) => seed + 1))(
    'begins with the planned steps, seed %i',
    async (seed) => {
      const random = createSeededRandom(seed);
      const pick = <Item>(items: readonly Item[]): Item =>
        items[Math.floor(random.next() * items.length)] as Item;
      const cluster = await startCluster(pick([2, 3, 5]));
      const replicas = pick([1, 2, 3, 5]);
      const strategy = pick([Strategy.ROLLING_UPDATE, Strategy.RECREATE, Strategy.BLUE_GREEN]);
      const surge =
        strategy === Strategy.ROLLING_UPDATE
          ? { maxSurge: pick([1, 2]), minAvailable: pick([0, 1, replicas]) }
          : {};
      await createWeb(cluster, { replicas, rollout: { ...QUICK, strategy, ...surge } });
      await cluster.advance(1_000);
      const change = pick([
        () => apply('web', { args: ['new'] }),
        () => scale('web', pick([0, 1, 4, 6])),
        () => restart('web'),
        () => drain('node-1'),
        () => apply('web', { args: ['new'], replicas: pick([1, 4]) }),
      ])();
      const made = await plan(cluster, change);
      const first = recordFirstSteps(cluster);
      const seen = recordExtremes(cluster);
      await execute(cluster, made);
      await cluster.advance(1_000);
      const [workloadPlan] = made.workloads;
      const { created, stopped, ids } = first();
      const verbs =
        workloadPlan === undefined
          ? []
          : describePlan(workloadPlan).map((step) => step.split(' ')[0]);
      expect(verbs.length === 0).toBe(created + stopped === 0);
      const firstVerbs = verbs.slice(0, created + stopped);
      expect({ created, stopped }).toEqual({
        created: firstVerbs.filter((verb) => verb === 'create').length,
        stopped: firstVerbs.filter((verb) => verb === 'stop').length,
      });
      await cluster.advance(30_000, 50);
      if (workloadPlan === undefined) return;
      // Nodes of later replicas depend on which stops are confirmed by then.
      const placedReplicas = [...cluster.state.view().replicas()]
        .map(({ value }) => value)
        .filter(({ id }) => ids.includes(id));
      const expected = workloadPlan.placements
        .slice(0, created - Math.min(created, workloadPlan.unplaced))
        .map(({ nodeId }) => nodeId);
      if (placedReplicas.length === created)
        expect(
          countsOf(placedReplicas.map(({ nodeId }) => nodeId).filter((id) => id !== '')),
        ).toEqual(countsOf(expected));
      expect(seen().lowestReady).toBeGreaterThanOrEqual(
        Math.min(workloadPlan.lowestReady, workloadPlan.minAvailable, seen().first),
      );
      expect(seen().highestLive).toBeLessThanOrEqual(workloadPlan.highestLive);
    },
  );
});

/** Records the creations and stops of the first commit that has any, from now on. */
function recordFirstSteps(
  cluster: TestCluster,
): () => { readonly created: number; readonly stopped: number; readonly ids: readonly string[] } {
  let first = { created: 0, stopped: 0, ids: [] as readonly string[] };
  cluster.state.subscribe((changes) => {
    const replicas = changes.filter(({ kind }) => kind === 'replica');
    const ids = replicas
      .filter(({ before }) => before === undefined)
      .map(({ after }) => (after as ReplicaRecord).id);
    const stopped = replicas.filter(({ before, after }) => wanted(before) && !wanted(after)).length;
    if (first.created + first.stopped === 0) first = { created: ids.length, stopped, ids };
  });
  return () => first;
}

/** Records the lowest ready and highest live counts from now on. */
function recordExtremes(
  cluster: TestCluster,
): () => { readonly first: number; readonly lowestReady: number; readonly highestLive: number } {
  const now = () => {
    const live = [...cluster.state.view().replicas()].map(({ value }) => value).filter(isLive);
    return {
      ready: live.filter(({ ready, desiredRunning }) => ready && desiredRunning).length,
      live: live.length,
    };
  };
  const { ready: first, live } = now();
  let [lowestReady, highestLive] = [first, live];
  cluster.state.subscribe(() => {
    const { ready, live: alive } = now();
    [lowestReady, highestLive] = [Math.min(lowestReady, ready), Math.max(highestLive, alive)];
  });
  return () => ({ first, lowestReady, highestLive });
}

function wanted(record: unknown): boolean {
  return (record as ReplicaRecord | undefined)?.desiredRunning === true;
}

/** Adds one to each count. */
function addOne(counts: Record<string, number>): Record<string, number> {
  return Object.fromEntries(Object.entries(counts).map(([nodeId, count]) => [nodeId, count + 1]));
}
