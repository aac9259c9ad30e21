import { timestampFromMs } from '@bufbuild/protobuf/wkt';
import {
  ReplicaStatus_Phase as Phase,
  Rollout_Strategy as Strategy,
  Taint_Effect as Effect,
} from '@cloudless/api';
import { RecordingMeter } from '@cloudless/base/testing';
import { TestBed, type ReplicaChanges } from '../testing/test-bed.js';
import { Placer } from './placer.js';

let bed: TestBed;
let meter: RecordingMeter;
let placer: Placer;

async function openWith(nodes: readonly string[]): Promise<void> {
  bed = await TestBed.open({ nodes });
  meter = new RecordingMeter();
  placer = bed.use(new Placer(bed.dependencies({ meter })));
}

afterEach(() => bed.close());

/** Adds waiting replicas of the workload `web`. */
const addWaiting = (count: number, changes: (index: number) => ReplicaChanges = () => ({})) =>
  bed.addReplicas(count, (index) => ({
    nodeId: '',
    phase: Phase.PENDING,
    ready: false,
    containerId: '',
    reason: 'waits for a node',
    ...changes(index),
  }));
const nodesOf = () => bed.replicas().map(({ nodeId }) => nodeId);
const cpu = (cpuMillis: number) => ({ resources: { requests: { cpuMillis } } });

describe('Placer', () => {
  it('assigns waiting replicas to the nodes that fit best', async () => {
    await openWith(['node-1', 'node-2']);
    await bed.createWorkload({ replicas: 2, ...cpu(1_000) });
    await addWaiting(2);
    await bed.advance();
    expect(nodesOf().sort()).toEqual(['node-1', 'node-2']);
    expect(bed.replicas()[0]).toMatchObject({ phase: Phase.ASSIGNED, reason: '' });
    expect(bed.replicas()[0]?.orderRevision).toBeGreaterThan(0n);
    expect(bed.events('ReplicasPlaced')).toHaveLength(1);
  });

  it('places no replacement on the node that a moved replica leaves, while another node fits', async () => {
    await openWith(['node-1', 'node-2']);
    await bed.createWorkload({ replicas: 3, ...cpu(2_000) });
    await bed.changeControl({
      activeVersion: 1,
      eviction: {
        replicaIds: ['web-9'],
        nodeIds: ['node-1'],
        until: timestampFromMs(bed.clock.wallTime() + 60_000),
      },
    });
    await addWaiting(2);
    await bed.advance();
    expect(nodesOf()).toEqual(['node-2', 'node-2']);
    await bed.addReplicas(1, () => ({
      ...{ id: 'web-3', sequence: 3n, nodeId: '', phase: Phase.PENDING, ready: false },
    }));
    await bed.advance();
    expect(nodesOf()).toEqual(['node-2', 'node-2', 'node-1']);
  });

  it('refuses a workload that the scheduler cannot decide about, and places the others', async () => {
    await openWith(['node-1']);
    await bed.createWorkload({ replicas: 1, priority: 90, ...cpu(-5) }, 'broken');
    await bed.createWorkload({ replicas: 1, ...cpu(1_000) });
    await bed.addReplicas(1, () => ({
      ...{ id: 'broken-1', uid: 'broken', nodeId: '', phase: Phase.PENDING },
    }));
    await addWaiting(1);
    await bed.advance();
    const reasons = bed.replicas('broken').map(({ reason }) => reason);
    expect(reasons).toEqual([expect.stringContaining('the scheduler cannot decide: ')]);
    expect(reasons[0]).toContain('resources.cpuMillis');
    expect(bed.replicas('web')).toMatchObject([{ nodeId: 'node-1' }]);
  });

  it('places as many replicas as fit and writes the reason into the other replicas', async () => {
    await openWith(['node-1']);
    await bed.createWorkload({ replicas: 3, ...cpu(2_000) });
    await addWaiting(3);
    await bed.advance();
    expect(bed.replicas()).toMatchObject([
      { nodeId: 'node-1' },
      { nodeId: 'node-1' },
      { nodeId: '', reason: 'no node fits: needs 2 CPU, more than is free: 1 of 1 nodes' },
    ]);
    expect(bed.events('ReplicasUnplaced')).toMatchObject([
      { message: 'no node fits 1 replica: needs 2 CPU, more than is free: 1 of 1 nodes' },
    ]);
    expect(await meter.read('cloudless_placements_total', { result: 'placed' })).toBe(2);
    expect(await meter.read('cloudless_placements_total', { result: 'unplaced' })).toBe(1);
  });

  it('writes an unchanged reason only once', async () => {
    await openWith(['node-1']);
    await bed.createWorkload({ replicas: 1, ...cpu(5_000) });
    await addWaiting(1);
    await bed.advance();
    const { revision } = bed.state.view();
    await bed.changeNode('node-1', { labels: { rack: 'a' } });
    await bed.advance();
    expect(bed.state.view().revision).toBe(revision + 1n);
  });

  it('writes the reason into more replicas than one decision refuses, and counts all of them', async () => {
    bed = await TestBed.open({ nodes: ['node-1'] });
    await bed.createWorkload({ replicas: 900, ...cpu(2_000) });
    await addWaiting(900);
    bed.use(new Placer(bed.dependencies({})));
    await bed.advance();
    const reasons = bed.replicas().map(({ nodeId, reason }) => (nodeId === '' ? reason : nodeId));
    const reason = 'no node fits: needs 2 CPU, more than is free: 1 of 1 nodes';
    expect(reasons).toEqual(['node-1', 'node-1', ...Array<string>(898).fill(reason)]);
    expect(new Set(bed.events('ReplicasUnplaced').map(({ message }) => message))).toEqual(
      new Set(['no node fits 898 replicas: needs 2 CPU, more than is free: 1 of 1 nodes']),
    );
  });

  it('places a workload of lower priority before it refuses the last of 900 replicas', async () => {
    bed = await TestBed.open({ nodes: ['node-1'] });
    await bed.createWorkload({ replicas: 900, priority: 90, ...cpu(5_000) });
    await bed.createWorkload({ replicas: 1, priority: 10, ...cpu(1_000) }, 'small');
    await addWaiting(901, (index) =>
      index < 900 ? {} : { uid: 'small', id: 'small-1', sequence: 1n },
    );
    bed.use(new Placer(bed.dependencies({})));
    await bed.advance();
    expect(bed.replicas('small')).toMatchObject([{ nodeId: 'node-1' }]);
    expect(bed.replicas('web').at(-1)?.reason).toContain('no node fits: needs 5 CPU');
    const order = [...bed.events('ReplicasPlaced'), ...bed.events('ReplicasUnplaced')]
      .sort((a, b) => (a.id < b.id ? -1 : 1))
      .map(({ workload }) => workload);
    expect(order.indexOf('small')).toBeLessThan(order.lastIndexOf('web'));
  });

  it.each([400, 1_500])(
    'reads no record of %i waiting replicas when a changed node still fits none',
    async (count) => {
      await openWith(['node-1']);
      await bed.createWorkload({ replicas: count, ...cpu(5_000) });
      await addWaiting(count);
      await bed.advance();
      expect(bed.replicas().filter(({ reason }) => reason.startsWith('no node'))).toHaveLength(
        count,
      );
      let decisions = 0;
      const place = bed.cluster.place.bind(bed.cluster);
      bed.cluster.place = (...subject) => {
        decisions += 1;
        return place(...subject);
      };
      const before = placer.listedCount;
      await bed.changeNode('node-1', { labels: { rack: 'a' } });
      await bed.advance();
      expect(decisions).toBe(1);
      expect(placer.listedCount).toBe(before);
    },
  );

  it('places a waiting replica when a node joins', async () => {
    await openWith([]);
    await bed.createWorkload({ replicas: 1 });
    await addWaiting(1);
    await bed.advance();
    expect(nodesOf()).toEqual(['']);
    await bed.addNode('node-1');
    await bed.advance();
    expect(nodesOf()).toEqual(['node-1']);
  });

  it('places a waiting replica when a stopped replica releases its resources', async () => {
    await openWith(['node-1']);
    await bed.createWorkload({ replicas: 2, ...cpu(3_000) });
    await addWaiting(2);
    await bed.advance();
    expect(nodesOf()).toEqual(['node-1', '']);
    await bed.changeReplica('web-1', { desiredRunning: false });
    await bed.advance();
    expect(nodesOf()).toEqual(['node-1', '']);
    await bed.changeReplica('web-1', { phase: Phase.STOPPED });
    await bed.advance();
    expect(nodesOf()).toEqual(['node-1', 'node-1']);
  });

  it('does not place on a node that is cordoned between plan and commit', async () => {
    await openWith(['node-1']);
    await bed.createWorkload({ replicas: 1 });
    bed.beforeNextCommit(() => bed.changeNode('node-1', { cordoned: true }));
    await addWaiting(1);
    await bed.advance();
    expect(bed.replicas()).toMatchObject([
      { nodeId: '', reason: 'no node fits: cordoned: 1 of 1 nodes' },
    ]);
  });

  it('does not place a replica that is stopped between plan and commit', async () => {
    await openWith(['node-1']);
    await bed.createWorkload({ replicas: 1 });
    bed.beforeNextCommit(() => bed.changeReplica('web-1', { desiredRunning: false }));
    await addWaiting(1);
    await bed.advance();
    expect(nodesOf()).toEqual(['']);
  });

  it('places workloads of higher priority first', async () => {
    await openWith([]);
    await bed.createWorkload({ replicas: 1, priority: 10, ...cpu(3_000) });
    await bed.createWorkload({ replicas: 1, priority: 90, ...cpu(3_000) }, 'urgent');
    await addWaiting(2, (index) =>
      index === 0 ? {} : { uid: 'urgent', id: 'urgent-1', sequence: 1n },
    );
    await bed.advance();
    await bed.addNode('node-1');
    await bed.advance();
    expect([bed.replicas('urgent'), bed.replicas()].map(([replica]) => replica?.nodeId)).toEqual([
      'node-1',
      '',
    ]);
  });

  it('places 100 replicas in commits of at most 45', async () => {
    await openWith(['node-1']);
    await bed.createWorkload({ replicas: 100, ...cpu(10) });
    const sizes = bed.recordCommitSizes();
    await addWaiting(100);
    await bed.advance();
    expect(new Set(nodesOf())).toEqual(new Set(['node-1']));
    expect(Math.max(...sizes)).toBe(46);
  });

  it('places no replica on a node without a session', async () => {
    await openWith(['node-1']);
    bed.disconnect('node-1');
    await bed.createWorkload({ replicas: 1 });
    await addWaiting(1);
    await bed.advance();
    expect(nodesOf()).toEqual(['']);
    bed.connect('node-1');
    await bed.advance();
    expect(nodesOf()).toEqual(['node-1']);
  });

  it('places no replica on a node with a taint that the replica does not tolerate', async () => {
    await openWith(['node-1', 'node-2']);
    await bed.changeNode('node-1', { taints: [{ key: 'gpu', effect: Effect.NO_SCHEDULE }] });
    await bed.createWorkload({ replicas: 2 });
    await addWaiting(2);
    await bed.advance();
    expect(nodesOf()).toEqual(['node-2', 'node-2']);
  });

  it('places a replica that is bound to one node on that node only', async () => {
    await openWith(['node-1', 'node-2']);
    await bed.createWorkload({ replicas: 2 });
    await addWaiting(2, (index) => ({ onlyNodeId: ['node-2', 'node-9'][index] ?? '' }));
    await bed.advance();
    expect(bed.replicas()).toMatchObject([
      { nodeId: 'node-2' },
      { nodeId: '', reason: 'node node-9 is not in the cluster' },
    ]);
  });

  it('places no replica while the store is rolled back, until an operator accepts the state', async () => {
    await openWith(['node-1']);
    bed.state.reportNewerState({ nodeId: 'node-1', epoch: 9n, orderRevision: 0n });
    await bed.createWorkload({ replicas: 1 });
    await addWaiting(1);
    await bed.advance();
    expect(nodesOf()).toEqual(['']);
    await bed.state.acceptRestoredState();
    await bed.advance();
    expect(nodesOf()).toEqual(['node-1']);
  });
});

describe('Placer with the new set of a blue/green rollout', () => {
  /** A workload whose version 1 serves, with waiting replicas of version 2. */
  async function waitForSet(replicas: number): Promise<void> {
    const rollout = { strategy: Strategy.BLUE_GREEN };
    await bed.createWorkload({ replicas, rollout, ...cpu(1_000) });
    await bed.changeControl({ activeVersion: 1, rollout: { strategy: Strategy.BLUE_GREEN } });
    await bed.updateWorkload({ replicas, command: ['new'], rollout, ...cpu(1_000) });
    await addWaiting(replicas, () => ({ version: 2 }));
    await bed.advance();
  }

  it('places the whole set when it fits', async () => {
    await openWith(['node-1', 'node-2']);
    await waitForSet(8);
    expect(nodesOf().filter((nodeId) => nodeId === '')).toEqual([]);
  });

  it('places no replica while a part of the set does not fit, and all when a node joins', async () => {
    await openWith(['node-1']);
    await waitForSet(5);
    expect(new Set(nodesOf())).toEqual(new Set(['']));
    expect(bed.replicas()[0]?.reason).toContain('the new set of 5 replicas is placed as a whole');
    await bed.addNode('node-2');
    await bed.advance();
    expect(nodesOf()).not.toContain('');
  });

  it('places the set when a scale-down makes it fit', async () => {
    await openWith(['node-1']);
    await waitForSet(5);
    const read = bed.state.view().replica('web-5')!;
    await bed.state.commitObserved(bed.state.transaction().deleteReplica(read));
    await bed.updateWorkload({
      replicas: 4,
      command: ['new'],
      rollout: { strategy: Strategy.BLUE_GREEN },
      ...cpu(1_000),
    });
    await bed.advance();
    expect(nodesOf()).not.toContain('');
  });
});
