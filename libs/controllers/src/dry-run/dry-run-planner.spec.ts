import { clone, create, type MessageInitShape } from '@bufbuild/protobuf';
import { timestampFromMs } from '@bufbuild/protobuf/wkt';
import {
  PlanOutcome_Kind as OutcomeKind,
  PlanWarning_Kind as WarningKind,
  PlacementReason_Kind,
  ReplicaStatus_Phase as Phase,
  Rollout_OnFailure as OnFailure,
  Rollout_Promotion as Promotion,
  Rollout_Strategy as Strategy,
  TaintSchema,
  Taint_Effect as Effect,
  WorkloadPlan_Action as Action,
  WorkloadSpec_Mode as Mode,
  type WorkloadPlan,
  type WorkloadSpecSchema,
} from '@cloudless/api';
import {
  ControlRecordSchema,
  DrainRecordSchema,
  EvictionRecordSchema,
  NodeRecordSchema,
  type NodeRecord,
} from '@cloudless/api/store';
import { Placer } from '../placement/placer.js';
import { TestBed, aSpec } from '../testing/test-bed.js';
import { WorkloadPresenter } from '../workload/workload-presenter.js';
import { WorkloadReconciler } from '../workload/workload-reconciler.js';
import { DryRunService } from './dry-run-service.js';

type SpecInit = MessageInitShape<typeof WorkloadSpecSchema>;

let bed: TestBed;
let dryRun: DryRunService;

async function openWith(nodes: readonly string[]): Promise<void> {
  bed = await TestBed.open({ nodes });
  const presenter = new WorkloadPresenter(bed.state, bed.nodes, bed);
  dryRun = new DryRunService(bed.dependencies({ presenter }));
}

/** Opens a cluster with one node that fits 50,000 replicas. */
async function openWithLargeNode(): Promise<void> {
  await openWith([]);
  await bed.addNode('node-1', {
    hello: {
      ...{ nodeId: 'node-1', maxReplicas: 50_000, capabilities: ['runtime.process'] },
      capacity: { cpuMillis: 100_000, memoryBytes: 1n << 50n },
    },
  });
}

afterEach(() => bed.close());

/** Creates a workload whose replicas run ready, each on the next node, as the first version. */
async function runWorkload(spec: SpecInit, nodes = ['node-1', 'node-2']): Promise<void> {
  const reconciler = new WorkloadReconciler(bed);
  await bed.createWorkload(spec);
  await bed.advance();
  for (const [index, { id, onlyNodeId }] of bed.replicas().entries())
    await bed.changeReplica(id, {
      nodeId: onlyNodeId === '' ? (nodes[index % nodes.length] ?? '') : onlyNodeId,
      phase: Phase.RUNNING,
      ready: true,
      reason: '',
      containerId: id,
    });
  await bed.advance(15_000);
  await reconciler.close();
}

const plan = (spec: SpecInit, name = 'web'): WorkloadPlan =>
  dryRun.predictAtOnce((planner) =>
    planner.planChange({
      namespace: 'default',
      name,
      current: bed.state.view().workloadByName('default', name)?.value,
      spec: aSpec(spec),
    }),
  );
const textsOf = ({ steps }: WorkloadPlan) =>
  steps.map(({ description, ready, live }) => `${description} (${ready}/${live})`);
const cpu = (cpuMillis: number) => ({ resources: { requests: { cpuMillis } } });
/** The node record as a drain would leave it. */
const drainedNode = (id: string, force = false) =>
  Object.assign(clone(NodeRecordSchema, bed.node(id)), {
    cordoned: true,
    draining: true,
    drain: create(DrainRecordSchema, { force, total: 1 }),
  });

/** Predicts the drain of nodes in one plan. */
function planDrain(...nodes: readonly NodeRecord[]): readonly WorkloadPlan[] {
  return dryRun.predictAtOnce(function* predict(planner) {
    for (const node of nodes) planner.putNode({ kind: 'changed', node });
    const plans: WorkloadPlan[] = [];
    for (const { id } of nodes) plans.push(...(yield* planner.planMoves(id)));
    return plans;
  });
}

describe('DryRunPlanner.planChange', () => {
  it('predicts the creation of a workload with nodes and zones, and commits nothing', async () => {
    await openWith(['node-1', 'node-2']);
    await bed.changeNode('node-1', { zone: 'a' });
    const { revision } = bed.state.view();
    const result = plan({ replicas: 2, ...cpu(1_000) });
    expect(result).toMatchObject({
      action: Action.CREATE,
      newVersion: true,
      generation: 0n,
      unplaced: 0,
      totalPlacements: 2,
      warnings: [],
    });
    expect(result.placements.map(({ nodeId, zone }) => `${nodeId} ${zone}`).sort()).toEqual([
      'node-1 a',
      'node-2 ',
    ]);
    expect(textsOf(result)).toEqual(['create 1 of version 1 (0/1)', 'create 1 of version 1 (0/2)']);
    expect(bed.state.view().revision).toBe(revision);
  });

  it('predicts the replicas that no node fits, with the reason and a warning', async () => {
    await openWith(['node-1']);
    const result = plan({ replicas: 2, ...cpu(3_000) });
    expect(result).toMatchObject({
      unplaced: 1,
      unplacedReason: 'needs 3 CPU, more than is free: 1 of 1 nodes',
    });
    expect(result.warnings).toEqual([
      '1 replica would find no node: needs 3 CPU, more than is free: 1 of 1 nodes',
    ]);
  });

  it.each([
    {
      name: 'about none after a change of the rollout settings, which starts no replica',
      change: { replicas: 3, rollout: { maxUnavailable: 2 } },
      count: 0,
    },
    { name: 'about none after a scale-down', change: { replicas: 2 }, count: 0 },
    { name: 'about the added ones after a scale-up', change: { replicas: 5 }, count: 2 },
    {
      name: 'about all new ones after an update',
      change: { replicas: 3, command: ['new'] },
      count: 3,
    },
  ])('warns of waiting replicas $name, when 2 of 3 waited before', async ({ change, count }) => {
    await openWith(['node-1']);
    bed.use(new WorkloadReconciler(bed));
    bed.use(new Placer(bed));
    await bed.createWorkload({ replicas: 3, ...cpu(3_000) });
    await bed.advance(1_000);
    const [placed] = bed.replicas().filter(({ nodeId }) => nodeId !== '');
    const running = { phase: Phase.RUNNING, ready: true, reason: '', containerId: 'c1' };
    await bed.changeReplica(placed?.id ?? '', running);
    await bed.advance(15_000);
    const result = plan({ ...change, ...cpu(3_000) });
    const warned = result.warningDetails.filter(({ kind }) => kind === WarningKind.NO_NODE_FITS);
    expect(warned.map(({ replicas }) => replicas)).toEqual(count === 0 ? [] : [count]);
    // The state in which the workload stays names all of them.
    expect(result).toMatchObject({ outcome: { kind: OutcomeKind.WAITS_FOR_NODE } });
  });

  it('counts the replicas of a workload of a million, and simulates only some of them', async () => {
    await openWith(['node-1']);
    const result = plan({ replicas: 1_000_000, ...cpu(3_000) });
    expect(result.steps.length).toBeLessThanOrEqual(20_001);
    expect(result).toMatchObject({
      unplaced: 999_999,
      totalPlacements: 1,
      totalSteps: 1_000_001,
      highestLive: 1_000_000,
      minAvailable: 999_999,
      outcome: { kind: OutcomeKind.WAITS_FOR_NODE, ready: 1, desired: 1_000_000 },
    });
    expect(result.steps.at(-1)).toMatchObject({ blocked: true, live: 1_000_000 });
    expect(result.warnings).toEqual([
      '999999 replicas would find no node: needs 3 CPU, more than is free: 1 of 1 nodes',
    ]);
  });

  it('predicts nothing for an unchanged spec', async () => {
    await openWith(['node-1', 'node-2']);
    await runWorkload({ replicas: 2 });
    expect(plan({ replicas: 2 })).toMatchObject({
      action: Action.NOTHING,
      changes: [],
      steps: [],
      newVersion: false,
      generation: 1n,
      lowestReady: 2,
      highestLive: 2,
    });
  });

  it('predicts a rolling update with the difference of the specs and the lowest ready count', async () => {
    await openWith(['node-1', 'node-2']);
    await runWorkload({ replicas: 2, rollout: { minAvailable: 2 } });
    const result = plan({ replicas: 2, command: ['new'], rollout: { minAvailable: 2 } });
    expect(result).toMatchObject({
      action: Action.UPDATE,
      newVersion: true,
      changes: [{ path: 'command', before: '["serve"]', after: '["new"]' }],
      lowestReady: 2,
      highestLive: 3,
      minAvailable: 2,
      warnings: [],
    });
    expect(textsOf(result)).toEqual([
      'create 1 of version 2 (2/3)',
      'stop 1 of version 1 (2/3)',
      'create 1 of version 2 (2/3)',
      'stop 1 of version 1 (2/3)',
    ]);
  });

  it('predicts a scale-down without a new version', async () => {
    await openWith(['node-1', 'node-2']);
    await runWorkload({ replicas: 2 });
    const result = plan({ replicas: 1 });
    expect(result).toMatchObject({ action: Action.UPDATE, newVersion: false });
    expect(textsOf(result)).toEqual(['stop 1 of version 1 (1/2)']);
  });

  it.each([
    { name: 'a time', step: { replicas: 1, wait: { seconds: 60n } }, text: 'wait 1m' },
    {
      name: 'a promotion',
      step: { replicas: 1, promotion: Promotion.MANUAL },
      text: 'wait until promoted',
    },
    {
      name: 'a gate',
      step: { replicas: 1, gate: 'restarts < 1' },
      text: 'gate "restarts < 1" is assumed to pass',
    },
    {
      name: 'a gate that has to be true for a time',
      step: { replicas: 1, wait: { seconds: 60n }, gate: 'restarts < 1' },
      text: 'wait 1m; gate "restarts < 1" is assumed to pass',
    },
    {
      name: 'a promotion and a gate',
      step: { replicas: 1, promotion: Promotion.MANUAL, gate: 'restarts < 1' },
      text: 'wait until promoted; gate "restarts < 1" is assumed to pass',
    },
  ])('predicts a canary step that waits for $name', async ({ step, text }) => {
    await openWith(['node-1', 'node-2']);
    const rollout = { minAvailable: 2, steps: [step] };
    await runWorkload({ replicas: 2, rollout });
    const result = plan({ replicas: 2, command: ['new'], rollout });
    expect(result.outcome).toMatchObject({ kind: OutcomeKind.COMPLETES, updated: 2 });
    expect(textsOf(result)).toEqual([
      'create 1 of version 2 (2/3)',
      'stop 1 of version 1 (2/3)',
      `${text} (2/2)`,
      'create 1 of version 2 (2/3)',
      'stop 1 of version 1 (2/3)',
    ]);
  });

  it('predicts the promotion that a last canary step with all replicas waits for', async () => {
    await openWith(['node-1', 'node-2']);
    const rollout = {
      minAvailable: 2,
      steps: [{ percent: 100, promotion: Promotion.MANUAL }],
    };
    await runWorkload({ replicas: 2, rollout });
    const result = plan({ replicas: 2, command: ['new'], rollout });
    expect(textsOf(result).slice(-2)).toEqual([
      'stop 1 of version 1 (2/3)',
      'wait until promoted (2/2)',
    ]);
    expect(result.outcome).toMatchObject({ kind: OutcomeKind.COMPLETES, updated: 2 });
  });

  it('ends the steps of an update at the replicas that no node fits, with the state that stays', async () => {
    await openWith(['node-1', 'node-2']);
    const rollout = { minAvailable: 1, maxUnavailable: 1, onFailure: OnFailure.ROLLBACK };
    await runWorkload({ replicas: 2, rollout, ...cpu(1_000) });
    const result = plan({ replicas: 2, command: ['new'], rollout, ...cpu(8_000) });
    expect(result.steps.at(-1)).toMatchObject({ blocked: true, ready: 1, live: 3 });
    expect(result.steps.at(-1)?.description).toMatch(/^2 replicas wait: no node fits \(.+\)$/);
    expect(result).toMatchObject({
      readyBefore: 2,
      warningDetails: [{ kind: WarningKind.NO_NODE_FITS, replicas: 2 }],
      outcome: {
        kind: OutcomeKind.WAITS_FOR_NODE,
        message:
          'rollout stays at 0 of 2 until a node fits, and rolls back to version 1 after 10m without progress',
        ready: 1,
        updated: 0,
        desired: 2,
      },
    });
  });

  it('predicts the switch of a blue/green rollout and the time for which it keeps the previous set', async () => {
    await openWith(['node-1', 'node-2']);
    const rollout = { strategy: Strategy.BLUE_GREEN, pauseDuration: { seconds: 60n } };
    await runWorkload({ replicas: 1, rollout });
    expect(textsOf(plan({ replicas: 1, command: ['new'], rollout }))).toEqual([
      'create 1 of version 2 (1/2)',
      'switch to version 2 (1/2)',
      'keep version 1 for 1m (1/2)',
      'stop 1 of version 1 (1/2)',
    ]);
  });

  it('predicts a node for a replacement that needs the resources that RECREATE releases', async () => {
    await openWith(['node-1']);
    const rollout = { strategy: Strategy.RECREATE };
    await runWorkload({ replicas: 1, rollout, ...cpu(3_000) }, ['node-1']);
    const result = plan({ replicas: 1, command: ['new'], rollout, ...cpu(3_000) });
    expect(result).toMatchObject({ unplaced: 0, lowestReady: 0, totalPlacements: 1 });
  });

  it('warns that RECREATE cannot keep min_available', async () => {
    await openWith(['node-1']);
    const rollout = { strategy: Strategy.RECREATE, minAvailable: 1 };
    expect(plan({ replicas: 1, rollout }).warnings).toEqual([
      'min_available 1 cannot be kept: RECREATE stops all replicas first',
    ]);
  });

  it.each([
    { name: 'a creation with a higher min_available', spec: { replicas: 3 }, counts: 3 },
    { name: 'min_available of all replicas', spec: { replicas: 5 }, counts: undefined },
    { name: 'no replicas', spec: { replicas: 0 }, counts: undefined },
    { name: 'mode GLOBAL', spec: { mode: Mode.GLOBAL }, counts: undefined },
  ])('warns about $name only when min_available is lowered', async ({ spec, counts }) => {
    await openWith(['node-1']);
    const { warningDetails } = plan({ ...spec, rollout: { minAvailable: 5 } });
    expect(warningDetails.map(({ kind, message }) => [kind, message])).toEqual(
      counts === undefined
        ? []
        : [
            [
              WarningKind.MIN_AVAILABLE_LOWERED,
              `min_available 5 is above the number of replicas and counts as ${counts}: until there are more, rollouts and drains stop no replica before its replacement is available`,
            ],
          ],
    );
  });

  it('warns about a scale-down below min_available, and not about an apply without changes', async () => {
    await openWith(['node-1', 'node-2']);
    const rollout = { minAvailable: 4 };
    await runWorkload({ replicas: 6, rollout });
    expect(plan({ replicas: 6, rollout }).warnings).toEqual([]);
    expect(plan({ replicas: 2, rollout }).warningDetails).toMatchObject([
      { kind: WarningKind.MIN_AVAILABLE_LOWERED, message: expect.stringContaining('counts as 2') },
    ]);
  });

  it('warns about a rollout that the change supersedes', async () => {
    await openWith(['node-1', 'node-2']);
    await runWorkload({ replicas: 1 });
    await bed.changeControl({ rolloutPhase: 1, rollout: { version: 1 } });
    expect(plan({ replicas: 1, command: ['new'] }).warnings).toEqual([
      'the rollout of version 1 is not done; version 2 takes its place',
    ]);
  });

  it('predicts one replica for each node of a GLOBAL workload', async () => {
    await openWith(['node-1', 'node-2']);
    const result = plan({ mode: Mode.GLOBAL });
    expect(textsOf(result)).toEqual([
      'create 1 of version 1 on node-1 (0/1)',
      'create 1 of version 1 on node-2 (0/2)',
    ]);
    expect(result.placements.map(({ nodeId }) => nodeId)).toEqual(['node-1', 'node-2']);
  });

  it('predicts a change on the result of the change that was predicted before', async () => {
    await openWith(['node-1']);
    const subject = (name: string) => ({
      namespace: 'default',
      name,
      current: undefined,
      spec: aSpec({ replicas: 1, ...cpu(3_000) }),
    });
    const unplaced = dryRun.predictAtOnce(function* predict(planner) {
      const first = yield* planner.planChange(subject('first'));
      return [first.unplaced, (yield* planner.planChange(subject('second'))).unplaced];
    });
    expect(unplaced).toEqual([0, 1]);
  });

  it('warns that placements of a very large plan were not predicted', async () => {
    await openWith(Array.from({ length: 150 }, (_, index) => `node-${index}`));
    const rollout = { minAvailable: 300, maxSurge: 1 };
    await runWorkload({ replicas: 300, rollout, ...cpu(1) }, ['node-1']);
    const result = plan({ replicas: 300, command: ['new'], rollout, ...cpu(1) });
    expect(result.warnings[0]).toMatch(
      /^the placement of (\d+) replicas was not predicted: \1 are beyond the 20000 evaluations of a node that a plan makes$/,
    );
  });

  it('warns of new replicas that a plan does not simulate, with the number and the reason', async () => {
    await openWithLargeNode();
    expect(plan({ replicas: 1_000_000, ...cpu(1) }).warningDetails).toMatchObject([
      {
        kind: WarningKind.NOT_PREDICTED,
        replicas: 980_000,
        message:
          'the placement of 980000 replicas was not predicted: 980000 are beyond the 20000 new or waiting replicas that a plan simulates',
      },
    ]);
  });

  it('warns of replicas that an update replaces later, with the number and the reason', async () => {
    await openWithLargeNode();
    await bed.createWorkload({ replicas: 2_500, ...cpu(1) });
    await bed.addReplicas(2_500);
    await bed.changeControl({ nextSequence: 2_501n, activeVersion: 1, rollout: { version: 1 } });
    await bed.advance(15_000);
    expect(plan({ replicas: 2_500, command: ['new'], ...cpu(1) }).warnings).toEqual([
      'the placement of 500 replicas was not predicted: 500 are replaced after the 2000 that a plan simulates',
    ]);
  });
});

describe('DryRunPlanner.planDeletion', () => {
  it('stops all replicas, warns about the running ones, and releases their resources', async () => {
    await openWith(['node-1']);
    await runWorkload({ replicas: 1, ...cpu(3_000) }, ['node-1']);
    const spec = aSpec({ replicas: 1, ...cpu(3_000) });
    const [result, other] = dryRun.predictAtOnce(function* predict(planner) {
      return [
        yield* planner.planDeletion(bed.workload()),
        yield* planner.planChange({
          ...{ namespace: 'default', name: 'other', current: undefined, spec },
        }),
      ] as const;
    });
    expect(result).toMatchObject({
      action: Action.DELETE,
      readyBefore: 1,
      lowestReady: 0,
      warningDetails: [
        { kind: WarningKind.STOPS_REPLICAS, message: '1 replica stops for good', replicas: 1 },
      ],
      outcome: { kind: OutcomeKind.DELETED },
    });
    expect(textsOf(result)).toEqual(['stop 1 of version 1 (0/1)']);
    expect(other.unplaced).toBe(0);
  });
});

describe('DryRunPlanner.planDeletion of many replicas', () => {
  it('contains the first 1,000 steps, and counts all replicas', async () => {
    await openWith(['node-1']);
    await bed.createWorkload({ replicas: 1_200 });
    await bed.addReplicas(1_200, (index) =>
      index < 2 ? {} : { nodeId: '', phase: Phase.PENDING, ready: false, containerId: '' },
    );
    const result = dryRun.predictAtOnce((planner) => planner.planDeletion(bed.workload()));
    expect(result).toMatchObject({ totalSteps: 1_200, readyBefore: 2, highestLive: 1_200 });
    expect(result.steps).toHaveLength(1_000);
    expect(result.steps.at(-1)).toMatchObject({ ready: 0, live: 1_200 });
    expect(result.warningDetails).toMatchObject([{ replicas: 2 }]);
  });
});

describe('DryRunPlanner.planRollout', () => {
  it('predicts the remaining steps of a resumed rollout, and none of a paused one', async () => {
    await openWith(['node-1', 'node-2']);
    await runWorkload({ replicas: 2, rollout: { minAvailable: 2 } });
    await bed.updateWorkload({ replicas: 2, command: ['new'], rollout: { minAvailable: 2 } });
    const control = (pausedVersion: number) =>
      Object.assign(clone(ControlRecordSchema, bed.control()), { pausedVersion });
    const planRollout = (action: Action, pausedVersion: number): WorkloadPlan =>
      dryRun.predictAtOnce((planner) =>
        planner.planRollout(action, bed.workload(), control(pausedVersion)),
      );
    const paused = planRollout(Action.PAUSE, 2);
    expect(paused).toMatchObject({ steps: [], warnings: [], outcome: { kind: OutcomeKind.STAYS } });
    const resumed = planRollout(Action.RESUME, 0);
    expect(textsOf(resumed)).toHaveLength(4);
    expect(resumed.outcome).toMatchObject({ kind: OutcomeKind.COMPLETES, ready: 2, updated: 2 });
  });
});

describe('DryRunPlanner.planMoves', () => {
  it('predicts the replacement of the replica on the drained node', async () => {
    await openWith(['node-1', 'node-2']);
    await runWorkload({ replicas: 2 });
    const [result, ...others] = planDrain(drainedNode('node-1'));
    expect(others).toEqual([]);
    expect(result).toMatchObject({ action: Action.MOVE, name: 'web', warnings: [], unplaced: 0 });
    expect(textsOf(result!)).toEqual(['create 1 of version 1 (2/3)', 'stop 1 of version 1 (1/3)']);
    expect(result?.placements.map(({ nodeId }) => nodeId)).toEqual(['node-2']);
  });

  it('warns that the drain would not finish when no other node fits', async () => {
    await openWith(['node-1', 'node-2']);
    await runWorkload({ replicas: 2, ...cpu(3_000), rollout: { minAvailable: 2 } });
    const [result] = planDrain(drainedNode('node-1'));
    expect(result?.warnings).toEqual([
      expect.stringMatching(
        /^the drain of node-1 would not finish: 1 replica would find no node: (?=.*needs 3 CPU, more than is free: . of 2 nodes).*being drained: 1 of 2 nodes/,
      ),
    ]);
  });

  it.each([
    { name: 'beside its replacement', rollout: {}, replicas: 2, lowestReady: 1, highestLive: 3 },
    {
      name: 'before its replacement',
      rollout: { maxSurge: 0, maxUnavailable: 1 },
      replicas: 1,
      lowestReady: 0,
      highestLive: 1,
    },
  ])(
    'warns that a replica finds no node, and not about the drain, when min_available allows the stop $name',
    async ({ rollout, replicas, lowestReady, highestLive }) => {
      await openWith(['node-1', 'node-2']);
      await bed.changeNode('node-2', { cordoned: replicas === 1 });
      await runWorkload({ replicas, ...cpu(3_000), rollout });
      const [result] = planDrain(drainedNode('node-1'));
      expect(result).toMatchObject({ lowestReady, highestLive, readyBefore: replicas });
      expect(result?.warnings).toEqual([expect.stringMatching(/^1 replica would find no node: /)]);
    },
  );

  it('predicts the end of the replica before its replacement when the move stops first', async () => {
    await openWith(['node-1', 'node-2']);
    await runWorkload({ replicas: 1, rollout: { maxSurge: 0, maxUnavailable: 1 } });
    const [result] = planDrain(drainedNode('node-1'));
    expect(result).toMatchObject({ lowestReady: 0, highestLive: 1, unplaced: 0, warnings: [] });
    expect(textsOf(result!)).toEqual(['stop 1 of version 1 (0/1)', 'create 1 of version 1 (0/1)']);
    expect(result?.placements.map(({ nodeId }) => nodeId)).toEqual(['node-2']);
  });

  it.each([
    { name: 'stops first', rollout: { maxSurge: 0 }, force: false, waits: true },
    { name: 'stops first, and is forced', rollout: { maxSurge: 0 }, force: true, waits: false },
    { name: 'starts the replacement first', rollout: {}, force: false, waits: false },
  ])(
    'warns only where the drain would wait for a replica that is not ready, when the move $name',
    async ({ rollout, force, waits }) => {
      await openWith(['node-1', 'node-2', 'node-3']);
      await runWorkload({ replicas: 3, rollout }, ['node-1', 'node-2', 'node-3']);
      await bed.changeReplica('web-3', { ready: false });
      const [result] = planDrain(drainedNode('node-1', force));
      const expected =
        'the drain of node-1 would wait: 2 of 3 replicas are ready, 1 not yet; 1 replica that has to leave its node stops before its replacement starts, and waits until 3 are ready: to go on before that, raise max_unavailable, and lower min_available if it is set';
      expect(result?.warnings.filter((text) => text.includes('would wait'))).toEqual(
        waits ? [expected] : [],
      );
      if (waits)
        expect(result?.warningDetails).toMatchObject([{ kind: WarningKind.DOES_NOT_COMPLETE }]);
    },
  );

  it('warns that the moves of a NO_EXECUTE taint and of a rebalance would wait for a replica that is not ready', async () => {
    await openWith(['node-1', 'node-2', 'node-3']);
    await runWorkload({ replicas: 3, rollout: { maxSurge: 0 } }, ['node-1', 'node-2', 'node-3']);
    await bed.changeReplica('web-3', { ready: false });
    const warning = /^the move would wait: 2 of 3 replicas are ready, 1 not yet; 1 replica that/;
    const tainted = clone(NodeRecordSchema, bed.node('node-1'));
    tainted.taints.push(create(TaintSchema, { key: 'bad', effect: Effect.NO_EXECUTE }));
    expect(planDrain(tainted)[0]?.warnings).toEqual([expect.stringMatching(warning)]);
    const control = clone(ControlRecordSchema, bed.control());
    control.eviction = create(EvictionRecordSchema, {
      ...{ replicaIds: ['web-1'], nodeIds: ['node-1'] },
      until: timestampFromMs(bed.clock.wallTime() + 60_000),
    });
    const moved = dryRun.predictAtOnce((planner) =>
      planner.planRollout(Action.MOVE, bed.workload(), control),
    );
    expect(moved.warnings).toEqual([expect.stringMatching(warning)]);
  });

  it('warns that a forced drain goes below min_available', async () => {
    await openWith(['node-1', 'node-2']);
    await runWorkload({ replicas: 1, rollout: { minAvailable: 1 } }, ['node-1']);
    const [result] = planDrain(drainedNode('node-1', true));
    expect(result?.warnings).toEqual([
      'the drain is forced: as few as 0 would be ready, and min_available is 1',
    ]);
  });

  it('moves each replica once, to the remaining node, when two of three nodes are drained', async () => {
    await openWith(['node-1', 'node-2', 'node-3']);
    await runWorkload({ replicas: 6, ...cpu(100) }, ['node-1', 'node-2', 'node-3']);
    const [result, ...others] = planDrain(drainedNode('node-1'), drainedNode('node-2'));
    expect(others).toEqual([]);
    expect(result).toMatchObject({ name: 'web', unplaced: 0, totalPlacements: 4, warnings: [] });
    expect(new Set(result?.placements.map(({ nodeId }) => nodeId))).toEqual(new Set(['node-3']));
  });

  it('replaces the replicas of a node that is confirmed as lost or removed', async () => {
    await openWith(['node-1', 'node-2']);
    await runWorkload({ replicas: 2 });
    for (const subject of [
      { kind: 'lost', node: bed.node('node-1') },
      { kind: 'removed', nodeId: 'node-1' },
    ] as const) {
      const [result] = dryRun.predictAtOnce((planner) => {
        planner.putNode(subject);
        return planner.planMoves('node-1');
      });
      expect(result).toMatchObject({ action: Action.MOVE, totalPlacements: 1, readyBefore: 1 });
    }
  });

  it('places waiting replicas on a node that is uncordoned, and nothing after a cordon', async () => {
    await openWith(['node-1', 'node-2']);
    await runWorkload({ replicas: 1 }, ['node-2']);
    await bed.changeNode('node-1', { cordoned: true });
    await bed.createWorkload({ replicas: 2, ...cpu(3_000) }, 'big');
    const reconciler = new WorkloadReconciler(bed);
    await bed.advance();
    await reconciler.close();
    const planUpdate = (id: string, cordoned: boolean) => {
      const node = Object.assign(clone(NodeRecordSchema, bed.node(id)), { cordoned });
      return planDrain(node);
    };
    expect(planUpdate('node-1', false)).toMatchObject([{ name: 'big', totalPlacements: 2 }]);
    expect(planUpdate('node-1', true)).toEqual([]);
  });

  it('compares all waiting workloads on one copy of the unchanged cluster', async () => {
    await openWith(['node-1', 'node-2']);
    await runWorkload({ replicas: 1 }, ['node-2']);
    const reconciler = new WorkloadReconciler(bed);
    for (const name of ['a', 'b', 'c'])
      await bed.createWorkload({ replicas: 1, ...cpu(3_000) }, name);
    await bed.createWorkload({ mode: Mode.GLOBAL, ...cpu(9_000) }, 'd');
    await bed.advance();
    await reconciler.close();
    let clones = 0;
    const original = bed.cluster.clone.bind(bed.cluster);
    bed.cluster.clone = () => {
      clones += 1;
      return original();
    };
    // Both nodes are free for a and b, and none for c, with and without the change.
    const relabelled = Object.assign(clone(NodeRecordSchema, bed.node('node-1')), { zone: 'x' });
    expect(planDrain(relabelled)).toEqual([]);
    expect(clones).toBe(2);
  });

  it('shows one workload as not predicted, and omits the later ones, in a very large plan', async () => {
    await openWith(Array.from({ length: 2_000 }, (_, index) => `node-${index}`));
    const reconciler = new WorkloadReconciler(bed);
    for (let index = 0; index < 12; index += 1)
      await bed.createWorkload({ replicas: 1, ...cpu(9_000) }, `web-${index}`);
    await bed.advance();
    await reconciler.close();
    const plans = planDrain(clone(NodeRecordSchema, bed.node('node-1')));
    expect(plans.map(({ warnings }) => warnings)).toEqual([
      [
        'the placement of 1 replica was not predicted: 1 is beyond the 20000 evaluations of a node that a plan makes',
      ],
    ]);
  });

  it('ignores workloads without replicas on the node', async () => {
    await openWith(['node-1', 'node-2']);
    await runWorkload({ replicas: 1 }, ['node-2']);
    expect(planDrain(drainedNode('node-1'))).toEqual([]);
  });
});

describe('DryRunService.explain', () => {
  it('lists for each node whether the node would take one more replica, with the reason', async () => {
    await openWith(['node-1', 'node-2']);
    await runWorkload({ replicas: 1, ...cpu(3_000) }, ['node-1']);
    const result = dryRun.explain(bed.workload());
    expect(result.summary).toBe('1 of 1 replicas are ready; 1 of 2 nodes would take one more');
    expect(result.nodes).toMatchObject([
      { nodeId: 'node-2', fits: true, reason: '' },
      { nodeId: 'node-1', fits: false, reason: 'needs 3 CPU, 1 free' },
    ]);
    expect(result.replicas).toHaveLength(1);
  });

  it('omits the replicas that the message of the workload omits', async () => {
    await openWith(['node-1']);
    await bed.createWorkload({ replicas: 1_001 });
    await bed.addReplicas(1_001);
    const { replicas, omittedReplicas } = dryRun.explain(bed.workload());
    expect([replicas.length, omittedReplicas]).toEqual([1_000, 1]);
  });

  it('gives all reasons of each node, the refusal and the smallest change when no node fits', async () => {
    await openWith(['node-1', 'node-2']);
    await bed.changeNode('node-2', { cordoned: true });
    await bed.createWorkload({ replicas: 1, image: 'nginx', ...cpu(9_000) });
    const { refusal, suggestion, nodes } = dryRun.explain(bed.workload());
    expect(refusal).toBe(
      'no node fits: no container runtime: 2 of 2 nodes; needs 9 CPU, more than the node has: 2 of 2 nodes; cordoned: 1 of 2 nodes',
    );
    expect(suggestion).toBe(
      'would fit on node-1 with a container runtime (containerd) and with at most 4 CPU; or use command instead of image',
    );
    expect(nodes[0]).toMatchObject({
      nodeId: 'node-1',
      reason: 'no container runtime; needs 9 CPU, the node has 4',
      reasons: [
        { kind: PlacementReason_Kind.CAPABILITY, lasting: true, text: 'no container runtime' },
        { kind: PlacementReason_Kind.CPU, lasting: true, text: 'needs 9 CPU, the node has 4' },
      ],
    });
    expect(nodes[1]?.reasons.at(-1)).toMatchObject({
      kind: PlacementReason_Kind.CORDONED,
      lasting: false,
      text: 'the node is cordoned',
    });
  });

  it('counts a node that runs its replica of a GLOBAL workload as fitting', async () => {
    await openWith(['node-1']);
    await runWorkload({ mode: Mode.GLOBAL, ...cpu(3_000) });
    const result = dryRun.explain(bed.workload());
    expect(result.summary).toContain('1 of 1 nodes run their replica or would take it');
    expect(result.nodes).toMatchObject([{ fits: true }]);
  });

  it('counts the nodes that each filter removes', async () => {
    await openWith(['node-1', 'node-2', 'node-3']);
    await bed.changeNode('node-2', { cordoned: true });
    await runWorkload({ replicas: 1, ...cpu(3_000) }, ['node-1']);
    expect(dryRun.explain(bed.workload()).funnel).toMatchObject([
      { kind: PlacementReason_Kind.CORDONED, removed: 1, left: 2 },
      { kind: PlacementReason_Kind.CPU, removed: 1, left: 1 },
    ]);
  });

  it('explains the waiting replica of a GLOBAL workload, although its other nodes fit', async () => {
    await openWith(['node-1', 'node-2']);
    await runWorkload({ replicas: 1, ...cpu(3_000) }, ['node-2']);
    await bed.createWorkload({ mode: Mode.GLOBAL, ...cpu(2_000) }, 'agent');
    bed.use(new WorkloadReconciler(bed));
    bed.use(new Placer(bed));
    await bed.advance(1_000);
    const { refusal, suggestion } = dryRun.explain(bed.workload('agent'));
    expect(refusal).toBe('node node-2 does not fit: needs 2 CPU, 1 free');
    expect(suggestion).toBe('would fit on node-2 with at most 1 CPU');
  });
});
