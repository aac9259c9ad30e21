import { ReplicaStatus_Phase as Phase, Rollout_Strategy as Strategy } from '@cloudless/api';
import type { ReplicaRecord } from '@cloudless/api/store';
import { toNodeId, toReplicaId, toWorkloadId } from '@cloudless/base';
import { Placer } from '../placement/placer.js';
import { TestBed } from '../testing/test-bed.js';
import { WorkloadReconciler } from '../workload/workload-reconciler.js';
import { PreemptionReconciler } from './preemption-reconciler.js';

/** A spec whose replicas need `cpu` thousandths of a core of the 4 000 of a node. */
function aSize(cpuMillis: number, replicas: number, priority: number) {
  return {
    replicas,
    priority,
    resources: { requests: { cpuMillis, memoryBytes: 1024n ** 2n } },
    rollout: { minReadyDuration: { seconds: 0n, nanos: 0 } },
  };
}

/** A spec of low priority of which one replica has to stay. */
function aLow(replicas: number, cpuMillis = 1_000, priority = 10) {
  const spec = aSize(cpuMillis, replicas, priority);
  return { ...spec, rollout: { ...spec.rollout, minAvailable: 1 } };
}

/** Nodes, and all controllers that take part in a preemption. */
async function openBed(nodes: readonly string[] = ['node-1']): Promise<TestBed> {
  const bed = await TestBed.open({ nodes });
  const deps = bed.dependencies({});
  bed.use(new WorkloadReconciler(deps));
  bed.use(new Placer(deps));
  bed.use(new PreemptionReconciler(deps));
  return bed;
}

/** Creates a workload and runs its placed replicas. */
async function run(
  bed: TestBed,
  uid: string,
  spec: Parameters<TestBed['createWorkload']>[0],
): Promise<void> {
  await bed.createWorkload(spec, uid);
  await bed.advance(50);
  await runPlaced(bed, uid);
  await bed.advance(50);
}

/** Reports the placed replicas of a workload as ready. */
async function runPlaced(bed: TestBed, uid: string): Promise<void> {
  for (const { id, nodeId, desiredRunning, ready } of bed.replicas(uid))
    if (nodeId !== '' && desiredRunning && !ready)
      await bed.changeReplica(id, { phase: Phase.RUNNING, ready: true, containerId: `c-${id}` });
}

const stoppingOf = (bed: TestBed, uid: string): readonly ReplicaRecord[] =>
  bed.replicas(uid).filter(({ desiredRunning }) => !desiredRunning);
const placedOn = (bed: TestBed, uid: string): readonly string[] =>
  bed
    .replicas(uid)
    .map(({ nodeId, nominatedNodeId }) => (nodeId === '' ? `(${nominatedNodeId})` : nodeId));

describe('PreemptionReconciler', () => {
  let bed: TestBed;
  afterEach(() => bed.close());

  it('stops one replica of lower priority, and places the waiting replica after its stop', async () => {
    bed = await openBed();
    await run(bed, 'low', aLow(4));
    await run(bed, 'high', aSize(1_000, 1, 200));
    expect(stoppingOf(bed, 'low').map(({ id, stopReason }) => [id, stopReason])).toEqual([
      ['low-4', 'preempted by default/high of priority 200'],
    ]);
    expect(bed.replicas('high')[0]).toMatchObject({
      nodeId: '',
      nominatedNodeId: 'node-1',
      reason: 'waits on node node-1 until 1 replica of lower priority has stopped',
    });
    await bed.confirmStops('low');
    await bed.advance(50);
    expect(bed.replicas('high')[0]).toMatchObject({
      nodeId: 'node-1',
      nominatedNodeId: '',
      phase: Phase.ASSIGNED,
    });
    const waiting = bed.replicas('low').filter(({ nodeId }) => nodeId === '');
    expect(waiting.map(({ reason }) => reason)).toEqual([
      'no node fits: needs 1 CPU, more than is free: 1 of 1 nodes',
    ]);
  });

  it('lets other work run between the decisions about many replicas that nothing helps', async () => {
    bed = await TestBed.open({ nodes: ['node-1'] });
    let decisions = 0;
    let pauses = 0;
    const cluster = Object.assign(Object.create(bed.cluster) as typeof bed.cluster, {
      preempt: (...args: Parameters<typeof bed.cluster.preempt>) => {
        decisions += 1;
        return bed.cluster.preempt(...args);
      },
    });
    const clock = Object.assign(Object.create(bed.clock) as typeof bed.clock, {
      setTimer: (...args: Parameters<typeof bed.clock.setTimer>) => {
        pauses += args[0] === 0 ? 1 : 0;
        return bed.clock.setTimer(...args);
      },
    });
    for (let each = 1; each <= 40; each += 1) {
      await bed.createWorkload(aSize(9_000, 1, 200), `high-${each}`);
      await bed.addReplicas(1, () => ({
        ...{ id: `high-${each}-1`, uid: `high-${each}`, nodeId: '', ready: false },
        ...{ phase: Phase.PENDING, containerId: '' },
      }));
    }
    bed.use(new PreemptionReconciler(bed.dependencies({ cluster, clock })));
    await bed.advance(50);
    expect(decisions).toBe(40);
    expect(pauses).toBeGreaterThanOrEqual(9);
  });

  it('decides about other replicas when the decision about one fails', async () => {
    bed = await openBed();
    await run(bed, 'low', aLow(4));
    await bed.createWorkload(aSize(-5, 1, 300), 'broken');
    await run(bed, 'high', aSize(1_000, 1, 200));
    expect(stoppingOf(bed, 'low')).toHaveLength(1);
  });

  it('records events whose causes lead from the replacement to the waiting replica', async () => {
    bed = await openBed();
    await run(bed, 'low', aLow(4));
    await run(bed, 'high', aSize(1_000, 1, 200));
    const [nominated] = bed.events('ReplicaNominated');
    const [preempted] = bed.events('ReplicaPreempted');
    const replacement = bed
      .events('ReplicasCreated')
      .findLast(({ workload }) => workload === 'low');
    expect(nominated).toMatchObject({
      workload: 'high',
      nodeId: 'node-1',
      message:
        'a replica waits for node node-1, which holds resources for it: no node has room; the lowest priorities and fewest replicas to evict are on node node-1: 1 of default/low',
    });
    expect(preempted).toMatchObject({
      workload: 'low',
      replicaId: 'low-4',
      causeId: nominated?.id,
      message:
        '1 replica on node node-1 preempted: default/high of priority 200 needs the resources, and this workload has priority 10; 3 available replicas remain, min_available is 1',
    });
    expect(replacement).toMatchObject({ replicaIds: ['low-5'], causeId: preempted?.id });
  });

  it('keeps the freed resources for the waiting replica', async () => {
    bed = await openBed();
    await run(bed, 'low', aLow(4));
    await run(bed, 'high', aSize(2_000, 1, 200));
    // The first victim has stopped, the second has not: half of the resources are free.
    const [first] = stoppingOf(bed, 'low');
    await bed.changeReplica(first?.id ?? '', { phase: Phase.STOPPED, ready: false });
    await run(bed, 'other', aSize(500, 1, 100));
    expect(placedOn(bed, 'other')).toEqual(['()']);
    await bed.confirmStops('low');
    await bed.advance(50);
    expect(placedOn(bed, 'high')).toEqual(['node-1']);
  });

  it.each([
    { name: 'equal priority', spec: aLow(4, 1_000, 200) },
    { name: 'the priority 100', spec: aLow(4), priority: 100 },
    { name: 'min_available', spec: { ...aLow(4), rollout: { minAvailable: 4 } } },
    { name: 'the default of min_available', spec: aSize(4_000, 1, 10) },
  ])('stops nothing because of $name', async ({ spec, priority = 200 }) => {
    bed = await openBed();
    await run(bed, 'low', spec);
    await run(bed, 'high', aSize(1_000, 1, priority));
    await bed.advance(5_000);
    expect(stoppingOf(bed, 'low')).toEqual([]);
    expect(bed.replicas('high')[0]?.reason).toMatch(/^no node fits: /);
    expect(bed.events('ReplicaNominated')).toEqual([]);
  });

  it('keeps min_available when several waiting replicas preempt the same workload', async () => {
    bed = await openBed();
    await run(bed, 'low', { ...aLow(4), rollout: { ...aLow(4).rollout, minAvailable: 2 } });
    await run(bed, 'high', aSize(1_000, 4, 200));
    expect(stoppingOf(bed, 'low')).toHaveLength(2);
    await bed.confirmStops('low');
    await bed.advance(50);
    expect([...placedOn(bed, 'high')].sort()).toEqual(['()', '()', 'node-1', 'node-1']);
    expect(bed.replicas('low').filter(({ ready }) => ready)).toHaveLength(2);
  });

  it('stops unready replicas without a permit', async () => {
    bed = await openBed();
    await bed.createWorkload(aSize(4_000, 1, 10), 'low');
    await bed.advance(50);
    await run(bed, 'high', aSize(1_000, 1, 200));
    expect(stoppingOf(bed, 'low').map(({ id }) => id)).toEqual(['low-1']);
  });

  it.each([
    {
      name: 'a replica that stops being ready',
      change: () => bed.changeReplica('low-1', { ready: false }),
      // A replica that is not ready goes instead of a ready one.
      stopped: ['low-1'],
    },
    { name: 'a cordon of the node', change: () => bed.changeNode('node-1', { cordoned: true }) },
    {
      name: 'a larger min_available',
      change: () =>
        bed.updateWorkload({ ...aLow(4), rollout: { ...aLow(4).rollout, minAvailable: 4 } }, 'low'),
    },
  ])('decides again after $name between decision and commit', async ({ change, stopped = [] }) => {
    bed = await TestBed.open({ nodes: ['node-1'] });
    const deps = bed.dependencies({});
    const controllers = [new WorkloadReconciler(deps), new Placer(deps)];
    await run(bed, 'low', { ...aLow(4), rollout: { ...aLow(4).rollout, minAvailable: 3 } });
    await run(bed, 'high', aSize(1_000, 1, 200));
    for (const controller of controllers) await controller.close();
    bed.beforeNextCommit(change);
    bed.use(new PreemptionReconciler(deps));
    await bed.advance(50);
    expect(stoppingOf(bed, 'low').map(({ id }) => id)).toEqual(stopped);
  });

  it('goes on after a restart of the coordinator, and evicts nothing twice', async () => {
    bed = await TestBed.open({ nodes: ['node-1', 'node-2'] });
    const deps = bed.dependencies({});
    bed.use(new WorkloadReconciler(deps));
    bed.use(new Placer(deps));
    const first = new PreemptionReconciler(deps);
    await run(bed, 'low', aLow(8));
    await run(bed, 'high', aSize(2_000, 1, 200));
    expect(stoppingOf(bed, 'low')).toHaveLength(2);
    await first.close();
    bed.use(new PreemptionReconciler(deps));
    await bed.advance(5_000);
    expect(stoppingOf(bed, 'low')).toHaveLength(2);
    await bed.confirmStops('low');
    await bed.advance(50);
    expect(placedOn(bed, 'high')).not.toEqual(['()']);
  });

  it('nominates another node when the first is lost', async () => {
    bed = await openBed(['node-1', 'node-2']);
    await run(bed, 'low', aLow(8));
    await run(bed, 'high', aSize(1_000, 1, 200));
    const nominated = bed.replicas('high')[0]?.nominatedNodeId ?? '';
    const other = nominated === 'node-1' ? 'node-2' : 'node-1';
    bed.silence(nominated);
    await bed.advance(6_000);
    expect(placedOn(bed, 'high')).toEqual([`(${other})`]);
  });

  it('stops nothing for a replica whose placement is on its way', async () => {
    bed = await TestBed.open({ nodes: ['node-1'] });
    const deps = bed.dependencies({});
    const controllers = [new WorkloadReconciler(deps), new Placer(deps)];
    await run(bed, 'low', aLow(3));
    for (const controller of controllers) await controller.close();
    const workloads = bed.use(new WorkloadReconciler(deps));
    await bed.createWorkload(aSize(1_000, 1, 200), 'high');
    await workloads.reconcile('high');
    const [replica] = bed.replicas('high');
    // The placer reserves what it is about to commit.
    bed.cluster.reserve({
      replicaId: toReplicaId(replica?.id ?? ''),
      nodeId: toNodeId('node-1'),
      workloadId: toWorkloadId('high'),
      namespace: 'default',
      resources: { cpuMillis: 1_000, memoryBytes: 1 },
    });
    bed.use(new PreemptionReconciler(deps));
    await bed.advance(50);
    expect(stoppingOf(bed, 'low')).toEqual([]);
    expect(bed.events('ReplicaNominated')).toEqual([]);
  });

  it('decides again when a placement on its way takes the resources of a nomination', async () => {
    bed = await openBed(['node-1', 'node-2']);
    await run(bed, 'low', aLow(8));
    await run(bed, 'high', aSize(1_000, 1, 200));
    const nominated = bed.replicas('high')[0]?.nominatedNodeId ?? '';
    expect(bed.events('ReplicaPreempted')).toHaveLength(1);
    // As the commit of a placement that was decided before the nomination.
    const waiting = bed.replicas('low').find(({ nodeId }) => nodeId === '');
    await bed.changeReplica(waiting?.id ?? '', { nodeId: nominated, phase: Phase.ASSIGNED });
    await bed.advance(50);
    expect(bed.events('ReplicaPreempted')).toHaveLength(2);
    await bed.confirmStops('low');
    await bed.advance(50);
    expect(placedOn(bed, 'high')).not.toEqual(['()']);
    expect(bed.replicas('high')[0]?.nodeId).not.toBe('');
  });

  it('drops the nomination with its replica', async () => {
    bed = await openBed();
    await run(bed, 'low', aLow(4));
    await run(bed, 'high', aSize(1_000, 1, 200));
    await bed.updateWorkload(aSize(1_000, 0, 200), 'high');
    await bed.advance(50);
    expect(bed.replicas('high')).toEqual([]);
    await bed.confirmStops('low');
    await bed.advance(50);
    // The replacement of the victim takes the place.
    expect(
      bed.replicas('low').filter(({ nodeId, desiredRunning }) => desiredRunning && nodeId === ''),
    ).toEqual([]);
  });

  it('gives a place to the higher of two waiting priorities', async () => {
    bed = await openBed();
    await run(bed, 'low', aLow(4, 1_000));
    await run(bed, 'high', aSize(3_000, 1, 200));
    await run(bed, 'highest', aSize(3_000, 1, 300));
    expect(placedOn(bed, 'high')).toEqual(['()']);
    expect(placedOn(bed, 'highest')).toEqual(['(node-1)']);
    await bed.confirmStops('low');
    await bed.advance(50);
    expect(placedOn(bed, 'highest')).toEqual(['node-1']);
    expect(bed.replicas('high')[0]?.reason).toMatch(/^no node fits/);
    expect(bed.events('ReplicaPreempted').flatMap(({ replicaIds }) => replicaIds)).toHaveLength(3);
  });

  it('preempts in a chain of falling priorities only, and comes to an end', async () => {
    bed = await openBed();
    await run(bed, 'low', aLow(2, 2_000, 10));
    await run(bed, 'middle', { ...aLow(1, 2_000, 150), rollout: { maxUnavailable: 1 } });
    await bed.confirmStops('low');
    await bed.advance(50);
    await runPlaced(bed, 'middle');
    await run(bed, 'top', aSize(2_000, 1, 300));
    // The lowest priority goes first; only its floor is left, so that the next lowest goes.
    for (let round = 0; round < 4; round += 1) {
      await bed.confirmStops('low');
      await bed.confirmStops('middle');
      await bed.advance(1_000);
      await runPlaced(bed, 'top');
    }
    expect(placedOn(bed, 'top')).toEqual(['node-1']);
    expect(bed.events('ReplicaPreempted').map(({ workload }) => workload)).toEqual([
      'low',
      'middle',
    ]);
  });

  it('evicts a large set in several commits', async () => {
    bed = await openBed();
    for (let index = 10; index < 35; index += 1)
      await run(bed, `low${index}`, { ...aSize(80, 2, 10), rollout: { maxUnavailable: 2 } });
    const sizes = bed.recordCommitSizes();
    await run(bed, 'high', aSize(4_000, 1, 200));
    const preempted = bed.events('ReplicaPreempted');
    expect(new Set(preempted.flatMap(({ replicaIds }) => replicaIds)).size).toBe(50);
    expect(Math.max(...sizes)).toBeLessThanOrEqual(100);
    expect(bed.events('ReplicaNominated').length).toBeGreaterThan(1);
  });

  it('waits as a whole with the new set of a blue/green rollout', async () => {
    bed = await openBed();
    const spec = { ...aSize(1_000, 2, 200), rollout: { strategy: Strategy.BLUE_GREEN } };
    await run(bed, 'high', spec);
    await run(bed, 'low', aLow(2));
    await bed.advance(5_000);
    await bed.updateWorkload({ ...spec, env: { VERSION: '2' } }, 'high');
    await bed.advance(5_000);
    expect(stoppingOf(bed, 'low')).toEqual([]);
    expect(bed.replicas('high').at(-1)?.reason).toMatch(/^the new set of 2 replicas/);
  });
});
