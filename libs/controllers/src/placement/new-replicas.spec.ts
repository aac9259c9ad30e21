import { create } from '@bufbuild/protobuf';
import { timestampFromMs } from '@bufbuild/protobuf/wkt';
import {
  ReplicaStatus_Phase as Phase,
  Rollout_Strategy as Strategy,
  WorkloadSpec_Mode as Mode,
} from '@cloudless/api';
import { ReplicaRecordSchema } from '@cloudless/api/store';
import { toNodeId } from '@cloudless/base';
import { RecordingMeter } from '@cloudless/base/testing';
import { TestBed } from '../testing/test-bed.js';
import { WorkloadReconciler } from '../workload/workload-reconciler.js';
import { NewReplicaPlacer } from './new-replicas.js';
import { PendingBatches } from './pending-batches.js';
import { Placer } from './placer.js';

let bed: TestBed;
let meter: RecordingMeter;
/** The nodes of the replicas of a workload in the commits that created them; empty: no node yet. */
let nodesAtCreation: Map<string, string[]>;

async function openWith(...nodes: readonly string[]): Promise<void> {
  bed = await TestBed.open({ nodes });
  meter = new RecordingMeter();
  nodesAtCreation = new Map();
  bed.state.subscribe((changes) => {
    for (const { kind, before, after } of changes) {
      if (kind !== 'replica' || before !== undefined || after === undefined) continue;
      const nodes = nodesAtCreation.get(after.uid) ?? [];
      nodesAtCreation.set(after.uid, [...nodes, after.nodeId]);
    }
  });
  const { recordsBeingPlaced } = bed;
  const pending = new PendingBatches(() => bed.state.view());
  bed.state.subscribe((changes) => pending.apply(changes));
  const scheduling = bed.dependencies({ meter, pending, recordsBeingPlaced });
  const newReplicas = new NewReplicaPlacer(scheduling);
  bed.use(new WorkloadReconciler(bed.dependencies({ newReplicas })));
  bed.use(new Placer(scheduling));
}

afterEach(() => bed.close());

const cpu = (cpuMillis: number) => ({ resources: { requests: { cpuMillis } } });
const nodesOf = (uid = 'web') => bed.replicas(uid).map(({ nodeId }) => nodeId);
/** CPU that the model of the scheduler has reserved on a node, in milli CPUs. */
const reservedOn = (nodeId: string) => bed.cluster.usage(toNodeId(nodeId))?.allocated.cpuMillis;
describe('NewReplicaPlacer', () => {
  it('creates replicas with their nodes in one commit', async () => {
    await openWith('node-1', 'node-2');
    const { revision } = bed.state.view();
    await bed.createWorkload({ replicas: 2, ...cpu(1_000) });
    await bed.advance();
    expect(nodesOf().sort()).toEqual(['node-1', 'node-2']);
    expect(nodesAtCreation.get('web')).toEqual(nodesOf());
    // The order is newer than every store without the replica: the workload is the commit before.
    const order = { phase: Phase.ASSIGNED, reason: '', orderRevision: revision + 2n };
    expect(bed.replicas()).toMatchObject([order, order]);
    expect([reservedOn('node-1'), reservedOn('node-2')]).toEqual([1_000, 1_000]);
    expect(await meter.read('cloudless_placements_total', { result: 'placed' })).toBe(2);
  });

  it('names the creation as the cause of the placement', async () => {
    await openWith('node-1');
    await bed.createWorkload({ replicas: 2 });
    await bed.advance();
    const [created] = bed.events('ReplicasCreated');
    expect(bed.events('ReplicasPlaced')).toMatchObject([
      { message: 'placed 2 replicas: 2 on node-1', causeId: created?.id },
    ]);
  });

  it('creates 130 replicas in commits of at most 45, each with its conditions', async () => {
    await openWith('node-1', 'node-2', 'node-3', 'node-4');
    await bed.createWorkload({ replicas: 130 });
    await bed.advance();
    expect(bed.events('ReplicasPlaced').map(({ message }) => message.split(':')[0])).toEqual([
      'placed 45 replicas',
      'placed 45 replicas',
      'placed 40 replicas',
    ]);
    expect(new Set(bed.replicas().map(({ slot }) => slot)).size).toBe(130);
    // The orders of each commit are newer than all commits before.
    const orders = bed.replicas().map(({ orderRevision }) => orderRevision);
    expect([...new Set(orders)].map((order) => orders.indexOf(order))).toEqual([0, 45, 90]);
    expect(orders).toEqual([...orders].sort((a, b) => Number(a - b)));
  });

  it('places what fits, and lets the placer refuse the rest with the reason', async () => {
    await openWith('node-1');
    await bed.createWorkload({ replicas: 3, ...cpu(2_000) });
    await bed.advance();
    expect(nodesOf()).toEqual(['node-1', 'node-1', '']);
    expect(bed.replicas()[2]?.reason).toContain('no node fits: ');
    expect(reservedOn('node-1')).toBe(4_000);
  });

  it('lets new replicas wait behind waiting replicas of the same priority', async () => {
    await openWith('node-1');
    await bed.createWorkload({ replicas: 1, ...cpu(5_000) }, 'large');
    await bed.advance();
    expect(nodesOf('large')).toEqual(['']);
    await bed.createWorkload({ replicas: 1, ...cpu(1_000) });
    await bed.advance();
    expect(nodesAtCreation.get('web')).toEqual(['']);
    expect(nodesOf()).toEqual(['node-1']);
  });

  it('places new replicas of a higher priority than that of all waiting replicas', async () => {
    await openWith('node-1');
    await bed.createWorkload({ replicas: 1, ...cpu(5_000) }, 'large');
    await bed.advance();
    await bed.createWorkload({ replicas: 1, priority: 60, ...cpu(1_000) });
    await bed.advance();
    expect(nodesAtCreation.get('web')).toEqual(['node-1']);
  });

  it.each([
    { title: 'a GLOBAL workload', spec: { mode: Mode.GLOBAL } },
    { title: 'a blue/green rollout', spec: { rollout: { strategy: Strategy.BLUE_GREEN } } },
  ])('leaves the replicas of $title to the placer', async ({ spec }) => {
    await openWith('node-1');
    await bed.createWorkload({ ...('mode' in spec ? {} : { replicas: 1 }), ...spec });
    await bed.advance();
    expect(nodesAtCreation.get('web')).toEqual(['']);
    expect(nodesOf()).toEqual(['node-1']);
  });

  it('places no replica on a node that a moved replica leaves, while another node fits', async () => {
    await openWith('node-1', 'node-2');
    await bed.createWorkload({ replicas: 1, ...cpu(1_000) });
    await bed.advance();
    await bed.runAll();
    await bed.advance(15_000);
    const [moved] = bed.replicas();
    const from = moved?.nodeId ?? '';
    await bed.changeControl({
      eviction: {
        replicaIds: [moved?.id ?? ''],
        nodeIds: [from],
        until: timestampFromMs(bed.clock.wallTime() + 60_000),
      },
    });
    await bed.advance();
    expect(bed.replicas()[1]?.nodeId).toBe(from === 'node-1' ? 'node-2' : 'node-1');
  });

  it('chooses nodes after the commit when the same commit stops replicas', async () => {
    await openWith('node-1', 'node-2');
    const inPlace = { maxSurge: 1, maxUnavailable: 1, minAvailable: 0 };
    await bed.createWorkload({ replicas: 2, ...cpu(1_000), rollout: inPlace });
    await bed.advance();
    await bed.runAll();
    await bed.advance(15_000);
    nodesAtCreation.clear();
    await bed.updateWorkload({ replicas: 2, ...cpu(1_000), rollout: inPlace, args: ['new'] });
    await bed.advance();
    expect(bed.replicas().some(({ desiredRunning }) => !desiredRunning)).toBe(true);
    expect(nodesAtCreation.get('web')).toContain('');
  });

  it('decides again when a node is cordoned before the commit', async () => {
    await openWith('node-1', 'node-2');
    const commit = bed.state.commit.bind(bed.state);
    let isFirst = true;
    bed.state.commit = async (transaction) => {
      if (isFirst) {
        isFirst = false;
        await bed.changeNode('node-1', { cordoned: true });
      }
      return commit(transaction);
    };
    await bed.createWorkload({ replicas: 2, ...cpu(1_000) });
    await bed.advance();
    expect(nodesOf()).toEqual(['node-2', 'node-2']);
    expect([reservedOn('node-1'), reservedOn('node-2')]).toEqual([0, 2_000]);
  });

  it('places no later replica of a decision on a node that is cordoned after its first commit', async () => {
    await openWith('node-1', 'node-2', 'node-3', 'node-4');
    const commit = bed.state.commit.bind(bed.state);
    let commits = 0;
    bed.state.commit = async (transaction) => {
      commits += 1;
      if (commits === 2) await bed.changeNode('node-1', { cordoned: true });
      return commit(transaction);
    };
    await bed.createWorkload({ replicas: 110, ...cpu(100) });
    await bed.advance();
    const onFirst = bed.replicas().filter(({ nodeId }) => nodeId === 'node-1');
    expect(onFirst.every(({ sequence }) => sequence <= 45n)).toBe(true);
    expect(bed.replicas().filter(({ nodeId }) => nodeId !== '')).toHaveLength(110);
    expect(reservedOn('node-1')).toBe(100 * onFirst.length);
  });

  it('gives back the nodes of the whole decision when a later commit fails', async () => {
    await openWith('node-1', 'node-2');
    const commit = bed.state.commit.bind(bed.state);
    let commits = 0;
    bed.state.commit = (transaction) => {
      commits += 1;
      return commits === 2
        ? Promise.reject(new Error('the store does not answer'))
        : commit(transaction);
    };
    await bed.createWorkload({ replicas: 60, ...cpu(100) });
    const sumReserved = () => (reservedOn('node-1') ?? 0) + (reservedOn('node-2') ?? 0);
    expect(sumReserved()).toBe(6_000);
    await bed.advance(10);
    expect(bed.replicas()).toHaveLength(45);
    expect(sumReserved()).toBe(4_500);
    await bed.advance(1_000);
    expect(nodesOf().filter((nodeId) => nodeId !== '')).toHaveLength(60);
    expect(sumReserved()).toBe(6_000);
  });

  it('places nothing any more when the last replica of a decision is committed', async () => {
    bed = await TestBed.open({ nodes: ['node-1'] });
    const pending = new PendingBatches(() => bed.state.view());
    const newReplicas = new NewReplicaPlacer(bed.dependencies({ pending }));
    await bed.createWorkload({ replicas: 2 });
    const workload = bed.state.view().workload('web')!;
    const placement = newReplicas.choose({ workload, nextControl: bed.control() }, 1, 2)!;
    const seen: boolean[] = [];
    for (let commit = 0; commit < 2; commit += 1) {
      seen.push(newReplicas.isPlacing);
      const creation = placement.startCreation();
      creation.assignNode(create(ReplicaRecordSchema), creation.takeNextNode()!);
      creation.begin();
      creation.end(/* isCommitted */ true);
    }
    seen.push(newReplicas.isPlacing);
    placement.close();
    expect(seen).toEqual([true, true, false]);
  });

  it('gives reservations back when the commit fails', async () => {
    await openWith('node-1');
    const commit = bed.state.commit.bind(bed.state);
    const seen: (number | undefined)[] = [];
    bed.state.commit = () => {
      seen.push(reservedOn('node-1'));
      return Promise.reject(new Error('the store does not answer'));
    };
    await bed.createWorkload({ replicas: 2, ...cpu(1_000) });
    await bed.advance();
    seen.push(reservedOn('node-1'));
    expect(seen.slice(0, 2)).toEqual([2_000, 0]);
    bed.state.commit = commit;
    await bed.advance(1_000);
    expect(nodesOf()).toEqual(['node-1', 'node-1']);
    expect(reservedOn('node-1')).toBe(2_000);
  });
});
