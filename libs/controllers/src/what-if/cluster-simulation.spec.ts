import { clone } from '@bufbuild/protobuf';
import fc from 'fast-check';
import {
  PlanOutcome_Kind as OutcomeKind,
  Rollout_Strategy as Strategy,
  WorkloadSpec_Mode as Mode,
  type SimulateClusterResponse,
} from '@cloudless/api';
import { NodeRecordSchema, WorkloadRecordSchema, type NodeRecord } from '@cloudless/api/store';
import type { SimulatedChanges, SnapshotRecords } from '@cloudless/cluster-state';
import { aNodeRecord, aSnapshot, type SnapshotWorkload } from '../testing/records.js';
import { aSpec } from '../testing/test-bed.js';
import { simulateCluster } from './cluster-simulation.js';
import { createRecordSource } from './record-source.js';

const NOTHING: SimulatedChanges = { nodes: [], addedNodes: [], workloads: [], deletions: [] };
const clock = { wallTime: () => 0 };
const cpu = (cpuMillis: number) => ({ resources: { requests: { cpuMillis } } });

function simulate(
  records: SnapshotRecords,
  changes: Partial<SimulatedChanges>,
): SimulateClusterResponse {
  const source = createRecordSource(records, { clock });
  const steps = simulateCluster(source, { ...NOTHING, ...changes });
  for (;;) {
    const next = steps.next();
    if (next.done === true) return next.value;
  }
}

const lose = (node: NodeRecord) =>
  ({
    kind: 'lost',
    node: Object.assign(clone(NodeRecordSchema, node), { lost: true, lossConfirmed: true }),
  }) as const;
const drain = (node: NodeRecord) =>
  ({
    kind: 'changed',
    node: Object.assign(clone(NodeRecordSchema, node), { cordoned: true, draining: true }),
  }) as const;

const [a1, a2, b1, b2] = [
  aNodeRecord('a1', 'a'),
  aNodeRecord('a2', 'a'),
  aNodeRecord('b1', 'b'),
  aNodeRecord('b2', 'b'),
];
const fourNodes = [a1, a2, b1, b2];
const summarizeMoves = ({ moves }: SimulateClusterResponse) =>
  moves.map(({ name, replicaId, fromNodeId, toNodeId }) =>
    [name, replicaId, fromNodeId, toNodeId].join(' '),
  );

describe('simulateCluster', () => {
  it('moves the replicas of a lost node, and shows the floor below min_available', () => {
    const records = aSnapshot(fourNodes, {
      web: { spec: { rollout: { minAvailable: 3 } }, on: ['a1', 'a2', 'b1'] },
      db: { spec: {}, on: ['b1'] },
    });
    const result = simulate(records, { nodes: [lose(a1)] });
    expect(summarizeMoves(result)).toEqual(['web web-1 a1 b2']);
    expect(result.moves[0]).toMatchObject({ fromZone: 'a', toZone: 'b' });
    expect(result.workloads).toMatchObject([
      { name: 'web', readyBefore: 3, floor: 2, minAvailable: 3, readyAfter: 3, waiting: 0 },
    ]);
    expect(result.before?.total).toMatchObject({ nodes: 4, cpuMillis: 16_000n });
    expect(result.after?.total).toMatchObject({ nodes: 3, cpuMillis: 12_000n });
    expect(result.after?.zones).toMatchObject([
      { zone: 'a', nodes: 1 },
      { zone: 'b', nodes: 2 },
    ]);
    expect(result.revision).toBe(7n);
  });

  it('predicts who is preempted, and that the replacements wait', () => {
    const records = aSnapshot([a1], {
      low: {
        spec: { ...cpu(1_000), priority: 10, rollout: { minAvailable: 1 } },
        on: ['a1', 'a1', 'a1', 'a1'],
      },
    });
    const spec = aSpec({ ...cpu(2_000), replicas: 1, priority: 200 });
    const result = simulate(records, {
      workloads: [{ namespace: 'default', name: 'high', current: undefined, spec }],
    });
    expect(result.workloads).toMatchObject([
      {
        ...{ name: 'high', placed: 1, waiting: 0, preempted: 0 },
        preempts: 'would preempt 2 replicas of default/low on a1',
      },
      {
        name: 'low',
        preempted: 2,
        leaving: 2,
        readyBefore: 4,
        readyAfter: 2,
        floor: 2,
        waiting: 2,
      },
    ]);
    expect(result.waitingAfter).toBe(2);
  });

  it('predicts where the replacements of preempted replicas go, and whom they preempt', () => {
    const spec = { ...cpu(3_000), rollout: { minAvailable: 0, maxUnavailable: 1 } };
    const records = aSnapshot([a1, b1], {
      middle: { spec: { ...spec, priority: 150, placement: { zones: ['a', 'b'] } }, on: ['a1'] },
      low: { spec: { ...spec, priority: 10 }, on: ['b1'] },
    });
    const high = aSpec({ ...cpu(3_000), replicas: 1, priority: 300, placement: { zones: ['a'] } });
    const result = simulate(records, {
      workloads: [{ namespace: 'default', name: 'high', current: undefined, spec: high }],
    });
    expect(
      result.workloads.map(({ name, preempted, waiting }) => [name, preempted, waiting]),
    ).toEqual([
      ['high', 0, 0],
      ['low', 1, 1],
      ['middle', 1, 0],
    ]);
  });

  it('keeps min_available while a node is drained', () => {
    const records = aSnapshot(fourNodes, {
      web: { spec: { rollout: { minAvailable: 3 } }, on: ['a1', 'a2', 'b1'] },
    });
    const result = simulate(records, { nodes: [drain(b1)] });
    expect(summarizeMoves(result)).toEqual(['web web-3 b1 b2']);
    expect(result.workloads).toMatchObject([{ floor: 3, minAvailable: 3, readyAfter: 3 }]);
  });

  it.each([
    {
      name: 'a single replica that stops first',
      rollout: { maxSurge: 0, maxUnavailable: 1 },
      on: ['b1'],
      floor: 0,
    },
    {
      name: 'several replicas that stop first one at a time',
      rollout: { maxSurge: 0, maxUnavailable: 1 },
      on: ['b1', 'b1', 'a1'],
      floor: 2,
    },
    {
      name: 'several replicas that stop first two at a time',
      rollout: { maxSurge: 0, maxUnavailable: 2 },
      on: ['b1', 'b1', 'a1'],
      floor: 1,
    },
    {
      name: 'RECREATE, where min_available allows a stop',
      rollout: { strategy: Strategy.RECREATE },
      on: ['b1', 'b1', 'a1'],
      floor: 2,
    },
    {
      name: 'RECREATE, where min_available allows no stop',
      rollout: { strategy: Strategy.RECREATE },
      on: ['b1'],
      floor: 1,
    },
  ])('shows the lowest number of ready replicas of a drain for $name', ({ rollout, on, floor }) => {
    const records = aSnapshot(fourNodes, { web: { spec: { rollout }, on } });
    const result = simulate(records, { nodes: [drain(b1)] });
    expect(result.workloads).toMatchObject([
      { floor, readyBefore: on.length, readyAfter: on.length, waiting: 0 },
    ]);
    expect(result.moves.map(({ fromNodeId }) => fromNodeId)).toEqual(
      on.filter((nodeId) => nodeId === 'b1'),
    );
  });

  it('shows replicas that no node fits, with the reason and the smallest change', () => {
    const records = aSnapshot([a1, b1], { web: { spec: cpu(3_000), on: ['a1', 'b1'] } });
    const result = simulate(records, { nodes: [lose(a1)] });
    expect(result).toMatchObject({ waitingBefore: 0, waitingAfter: 1 });
    expect(summarizeMoves(result)).toEqual(['web web-1 a1 ']);
    expect(result.workloads).toMatchObject([
      {
        waiting: 1,
        waitingReason: 'lost: 1 of 2 nodes; needs 3 CPU, more than is free: 1 of 2 nodes',
        suggestion: 'would fit on b1 with at most 1 CPU',
        outcome: { kind: OutcomeKind.WAITS_FOR_NODE },
      },
    ]);
  });

  it('places waiting replicas, and a replica of each GLOBAL workload, on added nodes', () => {
    const records = aSnapshot([a1], {
      web: { spec: cpu(3_000), on: ['a1', ''] },
      agent: { spec: { mode: Mode.GLOBAL, ...cpu(100) }, on: ['a1'] },
      idle: { spec: cpu(100), on: ['a1'] },
    });
    const result = simulate(records, { addedNodes: [aNodeRecord('new-1', 'c')] });
    expect(summarizeMoves(result)).toEqual(['agent   new-1', 'web   new-1']);
    expect(result).toMatchObject({ waitingBefore: 1, waitingAfter: 0, totalWorkloads: 2 });
  });

  it('gives the capacity of a deleted workload to a workload of lower priority that waits', () => {
    const records = aSnapshot([a1], {
      web: { spec: cpu(3_000), on: [''] },
      db: { spec: { ...cpu(3_000), priority: 90 }, on: ['a1'] },
    });
    const deleted = [...records.workloads].filter(({ uid }) => uid === 'db');
    const result = simulate(records, {
      deletions: deleted.map((workload) =>
        Object.assign(clone(WorkloadRecordSchema, workload), { deletionRequestedAt: {} }),
      ),
    });
    expect(summarizeMoves(result)).toEqual(['db db-1 a1 ', 'web   a1']);
    expect(result.workloads).toMatchObject([
      { name: 'db', desired: 0, readyAfter: 0, outcome: { kind: OutcomeKind.DELETED } },
      { name: 'web', readyAfter: 1, waiting: 0 },
    ]);
  });

  it('gives the capacity that a scaled-down workload releases to a waiting one before it', () => {
    const records = aSnapshot([a1], {
      web: { spec: { ...cpu(2_000), priority: 90 }, on: ['a1', ''] },
      db: { spec: cpu(2_000), on: ['a1'] },
    });
    const current = [...records.workloads].find(({ uid }) => uid === 'db');
    const result = simulate(records, {
      workloads: [
        {
          namespace: 'default',
          name: 'db',
          current,
          spec: aSpec({ ...cpu(2_000), replicas: 0 }),
        },
      ],
    });
    expect(summarizeMoves(result)).toEqual(['db db-1 a1 ', 'web   a1']);
  });

  it('places a new workload after those of higher priority', () => {
    const records = aSnapshot([a1, b1], { web: { spec: cpu(3_000), on: ['a1'] } });
    const result = simulate(records, {
      nodes: [lose(a1)],
      workloads: [
        {
          namespace: 'default',
          name: 'new',
          current: undefined,
          spec: aSpec({ replicas: 1, priority: 10, ...cpu(3_000) }),
        },
      ],
    });
    expect(result.workloads).toMatchObject([
      { name: 'new', waiting: 1, desired: 1 },
      { name: 'web', waiting: 0 },
    ]);
  });
});

const NODE_IDS = ['a1', 'a2', 'b1', 'b2', 'c1'];
const arbWorld = fc.record({
  workloads: fc.array(
    fc.record({
      cpuMillis: fc.constantFrom(100, 700, 1_500, 3_000),
      priority: fc.constantFrom(10, 50, 90, 150, 300),
      on: fc.array(fc.constantFrom('', ...NODE_IDS), { minLength: 1, maxLength: 5 }),
      global: fc.boolean(),
    }),
    { maxLength: 5 },
  ),
  lost: fc.subarray(NODE_IDS, { maxLength: 2 }),
  drained: fc.subarray(NODE_IDS, { maxLength: 2 }),
  added: fc.integer({ min: 0, max: 2 }),
});
type World = typeof arbWorld extends fc.Arbitrary<infer Value> ? Value : never;

/** Returns records in which no node holds more than its capacity. */
function toRecords({ workloads }: World): SnapshotRecords {
  const free = new Map(NODE_IDS.map((id) => [id, 4_000]));
  const entries = workloads.map(({ cpuMillis, priority, on, global }, index) => {
    const placed = on.map((id) => {
      const left = (free.get(id) ?? 0) - cpuMillis;
      if (left < 0) return '';
      free.set(id, left);
      return id;
    });
    const workload: SnapshotWorkload = global
      ? {
          spec: { mode: Mode.GLOBAL, priority, ...cpu(cpuMillis) },
          on: [...new Set(placed)].filter((id) => id !== ''),
        }
      : { spec: { priority, ...cpu(cpuMillis) }, on: placed };
    return [`w${index}`, workload] as const;
  });
  return aSnapshot(
    NODE_IDS.map((id) => aNodeRecord(id, id.slice(0, 1))),
    Object.fromEntries(entries),
  );
}

function toChanges({ lost, drained, added }: World): Partial<SimulatedChanges> {
  return {
    nodes: [
      ...lost.map((id) => lose(aNodeRecord(id, id.slice(0, 1)))),
      ...drained
        .filter((id) => !lost.includes(id))
        .map((id) => drain(aNodeRecord(id, id.slice(0, 1)))),
    ],
    addedNodes: Array.from({ length: added }, (_, index) => aNodeRecord(`new-${index}`, 'd')),
  };
}

describe('a simulation of random clusters', () => {
  it('changes nothing without changes', () => {
    fc.assert(
      fc.property(arbWorld, (world) => {
        const result = simulate(toRecords(world), {});
        expect(result.moves).toEqual([]);
        expect(result.after).toEqual(result.before);
        expect(result.waitingAfter).toBe(result.waitingBefore);
        expect(result.workloads.every(({ waiting }) => waiting > 0)).toBe(true);
      }),
      { numRuns: 20 },
    );
  });

  it('never exceeds the capacity of a node, and uses no lost or draining node', () => {
    fc.assert(
      fc.property(arbWorld, (world) => {
        const records = toRecords(world);
        const { moves } = simulate(records, toChanges(world));
        const used = new Map<string, number>();
        const book = (nodeId: string, name: string, sign: number): void => {
          const request = world.workloads[Number(name.slice(1))]?.cpuMillis ?? 0;
          used.set(nodeId, (used.get(nodeId) ?? 0) + sign * request);
        };
        for (const { nodeId, uid } of records.replicas) if (nodeId !== '') book(nodeId, uid, 1);
        for (const { name, fromNodeId, toNodeId } of moves) {
          if (fromNodeId !== '') book(fromNodeId, name, -1);
          if (toNodeId !== '') book(toNodeId, name, 1);
          expect([...world.lost, ...world.drained]).not.toContain(toNodeId);
        }
        expect(Math.max(0, ...used.values())).toBeLessThanOrEqual(4_000);
        for (const id of world.lost) expect(used.get(id) ?? 0).toBe(0);
      }),
      { numRuns: 40 },
    );
  });

  it('moves only replicas of lost and drained nodes and victims, and predicts the same each time', () => {
    fc.assert(
      fc.property(arbWorld, (world) => {
        const result = simulate(toRecords(world), toChanges(world));
        const preempted = new Map(result.workloads.map((each) => [each.name, each.preempted]));
        for (const { name, replicaId, fromNodeId } of result.moves)
          if (replicaId !== '' && preempted.get(name) === 0)
            expect([...world.lost, ...world.drained]).toContain(fromNodeId);
        for (const { floor, readyBefore } of result.workloads)
          expect(floor).toBeLessThanOrEqual(readyBefore);
        expect(simulate(toRecords(world), toChanges(world))).toEqual(result);
      }),
      { numRuns: 20 },
    );
  });
});
