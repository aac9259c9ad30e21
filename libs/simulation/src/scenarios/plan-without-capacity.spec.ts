import fc from 'fast-check';
import {
  PlanOutcome_Kind as OutcomeKind,
  Rollout_Strategy as Strategy,
  type WorkloadPlan,
} from '@cloudless/api';
import type { TestCluster } from '../test-cluster/test-cluster.js';
import { createWeb, readWeb, startCluster } from '../test-cluster/web-workload.js';

type Changes = NonNullable<Parameters<TestCluster['client']['createPlan']>[0]['changes']>;

/** Starts nodes with 1000 m CPU each. */
async function startSmallCluster(nodes: number): Promise<TestCluster> {
  const cluster = await startCluster(0);
  for (let number = 1; number <= nodes; number += 1)
    await cluster.addNode(`node-${number}`, {
      capacity: { cpuMillis: 1_000, memoryBytes: 8n << 30n },
    });
  return cluster;
}

const withCpu = (cpuMillis: number) => ({ resources: { requests: { cpuMillis } } });

/** Creates and executes a plan, and waits until nothing more happens. */
async function planAndExecute(cluster: TestCluster, changes: Changes) {
  const plan = await cluster.complete(() => cluster.client.createPlan({ changes }));
  await cluster.complete(() => cluster.client.executePlan({ id: plan.id }));
  await cluster.advance(30_000, 100);
  return plan;
}

/** The part of a workload's state that a plan predicts. */
async function readEnd(cluster: TestCluster) {
  const { status } = await readWeb(cluster);
  const replicas = (status?.replicas ?? []).filter(({ leaving, phase }) => !leaving && phase <= 4);
  return {
    ready: status?.readyReplicas,
    updated: replicas.filter(({ ready, version }) => ready && version === status?.version).length,
    waiting: replicas.filter(({ nodeId }) => nodeId === '').length,
  };
}

const toEnd = ({ outcome, unplaced }: WorkloadPlan) => ({
  ready: outcome?.ready,
  updated: outcome?.updated,
  waiting: unplaced,
});

describe('plan without capacity', () => {
  it('of an update ends at the first step that cannot happen, and says what stays', async () => {
    const cluster = await startSmallCluster(3);
    await createWeb(cluster, { replicas: 6, ...withCpu(400) });
    await cluster.advance(5_000, 100);
    const spec = withCpu(1_500);
    const { workloads } = await planAndExecute(cluster, [
      { change: { case: 'update', value: { name: 'web', spec } } },
    ]);
    const [plan] = workloads;
    expect(plan?.steps.at(-1)).toMatchObject({ blocked: true, ready: 5 });
    expect(plan?.steps.at(-1)?.description).toMatch(/^2 replicas wait: no node fits \(.+\)$/);
    expect(plan?.outcome).toMatchObject({
      kind: OutcomeKind.WAITS_FOR_NODE,
      message: 'rollout stays at 0 of 6 until a node fits, and fails after 10m without progress',
    });
    expect(toEnd(plan!)).toEqual(await readEnd(cluster));
  });

  it('ends in the state that the plan shows, for any update and any capacity', async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.record({
          nodes: fc.integer({ min: 1, max: 3 }),
          replicas: fc.integer({ min: 1, max: 6 }),
          wanted: fc.integer({ min: 0, max: 7 }),
          cpu: fc.constantFrom(200, 300, 450),
          newCpu: fc.constantFrom(200, 450, 700, 1_200),
          strategy: fc.constantFrom(
            Strategy.ROLLING_UPDATE,
            Strategy.RECREATE,
            Strategy.BLUE_GREEN,
          ),
          maxSurge: fc.constantFrom(1, 2),
          maxUnavailable: fc.constantFrom(0, 1, 2),
        }),
        async ({ nodes, replicas, wanted, cpu, newCpu, strategy, maxSurge, maxUnavailable }) => {
          const cluster = await startSmallCluster(nodes);
          const limits = strategy === Strategy.ROLLING_UPDATE ? { maxSurge, maxUnavailable } : {};
          const rollout = { strategy, ...limits };
          await createWeb(cluster, { replicas, rollout, ...withCpu(cpu) });
          await cluster.advance(20_000, 100);
          const spec = { replicas: wanted, ...withCpu(newCpu) };
          const { workloads } = await planAndExecute(cluster, [
            { change: { case: 'update', value: { name: 'web', spec } } },
          ]);
          const [plan] = workloads;
          expect(toEnd(plan!)).toEqual(await readEnd(cluster));
        },
      ),
      { numRuns: 25, seed: 11 },
    );
  }, 60_000);
});

const drain = (nodeId: string) => ({ change: { case: 'drain' as const, value: { nodeId } } });

const countByNode = (nodeIds: readonly string[]): Record<string, number> => {
  const counts: Record<string, number> = {};
  for (const nodeId of [...nodeIds].sort()) counts[nodeId] = (counts[nodeId] ?? 0) + 1;
  return counts;
};

describe('plan of several drains', () => {
  it('moves each replica once, to the node that stays, as the execution does', async () => {
    const cluster = await startSmallCluster(3);
    await createWeb(cluster, { replicas: 6, ...withCpu(100) });
    await cluster.advance(5_000, 100);
    const { workloads, nodes } = await planAndExecute(cluster, [drain('node-1'), drain('node-2')]);
    expect(nodes.map(({ nodeId, replicas }) => `${nodeId} ${replicas}`)).toEqual([
      'node-1 2',
      'node-2 2',
    ]);
    expect(workloads).toMatchObject([{ name: 'web', totalPlacements: 4, warnings: [] }]);
    expect(countByNode(workloads[0]?.placements.map(({ nodeId }) => nodeId) ?? [])).toEqual({
      'node-3': 4,
    });
    const { status } = await readWeb(cluster);
    expect(countByNode(status?.replicas.map(({ nodeId }) => nodeId) ?? [])).toEqual({
      'node-3': 6,
    });
    // Six replicas were created at first, and four to replace those of the drained nodes.
    expect(
      Math.max(...(status?.replicas ?? []).map(({ id }) => Number(id.split('-').at(-1)))),
    ).toBe(10);
  });

  it('ends in the state that the plan shows, for any capacity of the nodes that stay', async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.record({
          nodes: fc.integer({ min: 2, max: 4 }),
          drained: fc.integer({ min: 1, max: 3 }),
          replicas: fc.integer({ min: 1, max: 8 }),
          cpu: fc.constantFrom(100, 250, 300, 450, 600),
          maxUnavailable: fc.constantFrom(0, 1, 2),
        }),
        async ({ nodes, drained, replicas, cpu, maxUnavailable }) => {
          const cluster = await startSmallCluster(nodes);
          await createWeb(cluster, { replicas, rollout: { maxUnavailable }, ...withCpu(cpu) });
          await cluster.advance(10_000, 100);
          const before = await readEnd(cluster);
          const changes = Array.from({ length: Math.min(nodes, drained) }, (_, index) =>
            drain(`node-${index + 1}`),
          );
          const { workloads } = await planAndExecute(cluster, changes);
          const [plan] = workloads;
          const after = await readEnd(cluster);
          expect(after).toEqual(plan === undefined ? before : { ...toEnd(plan) });
          expect(plan?.steps.at(-1)?.blocked ?? false).toBe(
            after.waiting > 0 && plan !== undefined,
          );
        },
      ),
      { numRuns: 25, seed: 7 },
    );
  }, 60_000);
});
