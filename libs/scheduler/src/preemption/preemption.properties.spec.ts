import fc from 'fast-check';
import { toNodeId, toReplicaId, toWorkloadId } from '@cloudless/base';
import type {
  Evictability,
  PlacementFilter,
  PlacementRequest,
  PreemptionDecision,
  PreemptOptions,
  Reservation,
  SchedulerNode,
  VictimCandidate,
} from '../index.js';
import { aCluster, aNode, aRequest, aReservation } from '../testing/builders.js';
import { compareVictimPriorities } from './preemption.js';

/** A small, crowded cluster, a request, and what its owner may evict. */
interface CrowdedWorld {
  readonly nodes: readonly SchedulerNode[];
  readonly reservations: readonly Reservation[];
  readonly request: PlacementRequest;
  /** By replica id. */
  readonly evictability: Readonly<Record<string, Evictability>>;
  /** By workload id. */
  readonly permits: Readonly<Record<string, number>>;
}

const CAPACITY_FILTERS: ReadonlySet<PlacementFilter> = new Set([
  'replicas',
  'cpu',
  'memory',
  'storage',
  'bandwidth',
  'gpu',
  'customResource',
  'hostPort',
]);
const RUNS = { numRuns: 250 };
const workloads = ['low', 'other', 'web'] as const;

const amounts = (most: number) =>
  fc.record({
    cpuMillis: fc.integer({ min: 0, max: most }).map((cores) => cores * 500),
    memoryBytes: fc.integer({ min: 0, max: most }),
    storageBytes: fc.constantFrom(0, 0, 1, 2),
    bandwidthBps: fc.constantFrom(0, 0, 0, 1),
    gpus: fc.constantFrom(0, 0, 0, 1),
    custom: fc.constantFrom({}, {}, {}, { license: 1 }, { license: 2 }, { license: 1, fpga: 1 }),
  });
const ports = fc.subarray([
  { number: 80, protocol: 'tcp' as const },
  { number: 53, protocol: 'udp' as const },
]);
const somePorts = fc.oneof(
  { weight: 4, arbitrary: fc.constant([]) },
  { weight: 1, arbitrary: ports },
);

const nodes = fc.array(
  fc.record({
    capacity: fc.record({
      cpuMillis: fc.integer({ min: 2, max: 6 }).map((cores) => cores * 500),
      memoryBytes: fc.integer({ min: 2, max: 7 }),
      storageBytes: fc.integer({ min: 0, max: 3 }),
      bandwidthBps: fc.integer({ min: 0, max: 2 }),
      gpus: fc.integer({ min: 0, max: 2 }),
      custom: fc.record({
        license: fc.integer({ min: 0, max: 4 }),
        fpga: fc.integer({ min: 0, max: 1 }),
      }),
    }),
    maxReplicas: fc.constantFrom(2, 4, 110),
    zone: fc.constantFrom('a', 'b'),
    availability: fc.record({
      cordoned: fc.integer({ min: 0, max: 9 }).map((draw) => draw === 0),
      draining: fc.integer({ min: 0, max: 9 }).map((draw) => draw === 0),
      lost: fc.integer({ min: 0, max: 9 }).map((draw) => draw === 0),
      quarantined: fc.integer({ min: 0, max: 9 }).map((draw) => draw === 0),
    }),
  }),
  { minLength: 1, maxLength: 3 },
);
const reservations = fc.array(
  fc.record({
    nodeIndex: fc.integer({ min: 0, max: 2 }),
    workloadId: fc.constantFrom(...workloads).map(toWorkloadId),
    priority: fc.constantFrom(0, 10, 10, 50, 50, 99, 200, 300),
    resources: amounts(3),
    hostPorts: somePorts,
    leaving: fc.constantFrom(false, false, false, true),
  }),
  { maxLength: 11 },
);
const worlds: fc.Arbitrary<CrowdedWorld> = fc
  .record({
    nodes,
    reservations,
    request: fc.record({
      priority: fc.constantFrom(150, 200, 250, 1_000),
      resources: amounts(4),
      hostPorts: somePorts,
    }),
    evictability: fc.array(fc.constantFrom<Evictability>('free', 'counted', 'counted', 'never'), {
      minLength: 11,
      maxLength: 11,
    }),
    permits: fc.record({
      low: fc.integer({ min: -1, max: 3 }),
      other: fc.integer({ min: 0, max: 2 }),
    }),
  })
  .map(({ nodes, reservations, request, evictability, permits }) => ({
    nodes: nodes.map((node, index) => aNode(`n${index}`, node)),
    reservations: reservations.map(({ nodeIndex, ...reservation }, index) =>
      aReservation(`r${index}`, { ...reservation, nodeId: toNodeId(`n${nodeIndex}`) }),
    ),
    request: aRequest(request),
    evictability: Object.fromEntries(evictability.map((each, index) => [`r${index}`, each])),
    permits,
  }));

const separate = fc.record({
  mode: fc.constantFrom('required' as const),
  topology: fc.constantFrom('node', 'zone'),
  selector: fc
    .constantFrom('low', 'other', 'web')
    .map((app) => [{ key: 'app', operator: 'In' as const, values: [app] }]),
});
const sometimes = <Value>(value: fc.Arbitrary<Value>, weight: number) =>
  fc.oneof(
    { weight: 5, arbitrary: fc.constant([]) },
    { weight, arbitrary: value.map((one) => [one]) },
  );

/** Worlds in which replicas keep others away, and requests that keep away from others. */
const worldsWithTerms: fc.Arbitrary<CrowdedWorld> = fc
  .record({
    world: worlds,
    ofReservations: fc.array(sometimes(separate, 1), { minLength: 11, maxLength: 11 }),
    ofRequest: fc.record({
      workloadAntiAffinity: sometimes(separate, 2),
      spread: sometimes(
        fc.record({
          topology: fc.constantFrom('node', 'zone'),
          mode: fc.constantFrom('required' as const, 'preferred' as const),
          maxSkew: fc.integer({ min: 1, max: 2 }),
        }),
        10,
      ),
    }),
  })
  .map(({ world, ofReservations, ofRequest: { workloadAntiAffinity, spread } }) => ({
    ...world,
    reservations: world.reservations.map((held, index) => ({
      ...held,
      labels: { app: held.workloadId },
      workloadAntiAffinity: ofReservations[index] ?? [],
    })),
    request: { ...world.request, workloadAntiAffinity, ...(spread[0] && { spread: spread[0] }) },
  }));

function optionsOf({
  evictability,
  permits,
}: CrowdedWorld): Required<Pick<PreemptOptions, 'evictabilityOf' | 'permitsOf'>> {
  return {
    evictabilityOf: ({ replicaId }) => evictability[replicaId] ?? 'never',
    permitsOf: (workloadId) => permits[workloadId] ?? 0,
  };
}

function decide(world: CrowdedWorld, options: PreemptOptions = optionsOf(world)) {
  return aCluster(world.nodes, world.reservations).preempt(world.request, options);
}

/** Returns true when the request fits on a node after the leaving replicas and `victims` ended. */
function fitsWithout(
  { nodes, reservations, request }: CrowdedWorld,
  nodeId: SchedulerNode['id'],
  victims: ReadonlySet<string>,
): boolean {
  const staying = reservations.filter(
    ({ replicaId, leaving }) => leaving !== true && !victims.has(replicaId),
  );
  return aCluster(nodes, staying).placeOn(request, [nodeId])[0]?.placed === true;
}

/** Lists every sufficient set of victims that the options allow, by brute force. */
function listVictimSets(world: CrowdedWorld): readonly (readonly number[])[] {
  const { evictabilityOf, permitsOf } = optionsOf(world);
  const { priority = 50, workloadId } = world.request;
  const eligible = aCluster(world.nodes, world.reservations)
    .explain(world.request)
    .filter(
      (node) => node.fits || node.reasons.every(({ filter }) => CAPACITY_FILTERS.has(filter)),
    );
  return eligible.flatMap(({ nodeId }) => {
    const candidates = world.reservations
      .filter((held) => held.nodeId === nodeId && held.leaving !== true)
      .map((held): VictimCandidate => ({ ...held, priority: held.priority ?? 50 }))
      .filter(
        (held) =>
          held.priority < priority &&
          held.workloadId !== workloadId &&
          evictabilityOf(held) !== 'never',
      );
    return listSubsets(candidates)
      .filter((victims) =>
        [...new Set(victims.map((victim) => victim.workloadId))].every(
          (workload) =>
            victims.filter(
              (victim) => victim.workloadId === workload && evictabilityOf(victim) === 'counted',
            ).length <= Math.max(0, permitsOf(workload)),
        ),
      )
      .filter((victims) =>
        fitsWithout(world, nodeId, new Set(victims.map(({ replicaId }) => replicaId))),
      )
      .map((victims) => victims.map((victim) => victim.priority).sort((a, b) => b - a));
  });
}

function listSubsets<Item>(items: readonly Item[]): readonly (readonly Item[])[] {
  return items.reduce<readonly (readonly Item[])[]>(
    (subsets, item) => [...subsets, ...subsets.map((subset) => [...subset, item])],
    [[]],
  );
}

function prioritiesOf(decision: PreemptionDecision): readonly number[] | undefined {
  return decision.kind === 'preempt' ? decision.victims.map(({ priority }) => priority) : undefined;
}

/** Compares a decision with the best of all sets of victims on all nodes. */
function expectBestVictims(world: CrowdedWorld): void {
  const fits = aCluster(world.nodes, world.reservations).place(world.request, 1)[0]?.placed;
  const decision = decide(world);
  expect(decision.kind === 'fits').toBe(fits);
  if (fits === true) return;
  const [best] = [...listVictimSets(world)].sort(compareVictimPriorities);
  expect(prioritiesOf(decision)).toEqual(best);
}

describe('preempt, compared with brute force', () => {
  it('finds the victims of the lowest priorities over all nodes', () => {
    fc.assert(fc.property(worlds, expectBestVictims), RUNS);
  });

  it('evicts nothing where anti-affinity or a required spread excludes the request', () => {
    fc.assert(fc.property(worldsWithTerms, expectBestVictims), RUNS);
  });

  it('evicts only replicas of lower priority and other workloads, within the permits', () => {
    fc.assert(
      fc.property(worlds, (world) => {
        const decision = decide(world);
        if (decision.kind !== 'preempt') return;
        const { evictabilityOf, permitsOf } = optionsOf(world);
        for (const victim of decision.victims) {
          expect(victim.priority).toBeLessThan(world.request.priority ?? 50);
          expect(victim.workloadId).not.toBe(world.request.workloadId);
          expect(evictabilityOf(victim)).not.toBe('never');
          const counted = decision.victims.filter(
            (other) =>
              other.workloadId === victim.workloadId && evictabilityOf(other) === 'counted',
          );
          expect(counted.length).toBeLessThanOrEqual(Math.max(0, permitsOf(victim.workloadId)));
        }
      }),
      RUNS,
    );
  });

  it('makes room for the request, and spares no victim', () => {
    fc.assert(
      fc.property(worlds, (world) => {
        const decision = decide(world);
        if (decision.kind !== 'preempt') return;
        const ids = decision.victims.map(({ replicaId }) => replicaId);
        expect(fitsWithout(world, decision.nodeId, new Set(ids))).toBe(true);
        for (const spared of ids)
          expect(
            fitsWithout(world, decision.nodeId, new Set(ids.filter((id) => id !== spared))),
          ).toBe(false);
      }),
      RUNS,
    );
  });

  it('does not depend on the order of nodes and reservations', () => {
    fc.assert(
      fc.property(worlds, (world) => {
        const reversed = {
          ...world,
          nodes: [...world.nodes].reverse(),
          reservations: [...world.reservations].reverse(),
        };
        expect(decide(reversed)).toEqual(decide(world));
      }),
      RUNS,
    );
  });

  it('decides the same after any changes as a cluster that was built anew', () => {
    fc.assert(
      fc.property(worlds, worlds, (before, after) => {
        const cluster = aCluster(before.nodes, before.reservations);
        cluster.preempt(before.request, optionsOf(before));
        const kept = new Set(after.nodes.map(({ id }) => id));
        for (const { id } of before.nodes) if (!kept.has(id)) cluster.removeNode(id);
        for (const node of after.nodes) cluster.upsertNode(node);
        for (const { replicaId } of before.reservations) cluster.release(replicaId);
        for (const reservation of after.reservations) cluster.reserve(reservation);
        expect(cluster.preempt(after.request, optionsOf(after))).toEqual(decide(after));
      }),
      RUNS,
    );
  });

  it('names what min_available protects exactly when only permits are missing', () => {
    fc.assert(
      fc.property(worlds, (world) => {
        const decision = decide(world);
        if (decision.kind !== 'impossible') return;
        const { evictabilityOf } = optionsOf(world);
        const free = decide(world, { evictabilityOf });
        expect(decision.withoutPermits).toEqual(
          free.kind === 'preempt' ? { nodeId: free.nodeId, victims: free.victims } : undefined,
        );
      }),
      RUNS,
    );
  });

  it('keeps its decision when a replica that it would not evict is added as a victim’s equal', () => {
    // A later replica of the same priority and size is evicted first: the newest goes first.
    const cluster = aCluster(
      [aNode('n1', { capacity: { cpuMillis: 2_000, memoryBytes: 8 } })],
      ['r1', 'r2', 'r10'].map((id) =>
        aReservation(id, {
          workloadId: toWorkloadId('low'),
          priority: 10,
          resources: { cpuMillis: 600, memoryBytes: 1 },
        }),
      ),
    );
    const decision = cluster.preempt(
      aRequest({ priority: 200, resources: { cpuMillis: 500, memoryBytes: 1 } }),
    );
    expect(
      decision.kind === 'preempt' && decision.victims.map(({ replicaId }) => replicaId),
    ).toEqual([toReplicaId('r10')]);
  });
});
