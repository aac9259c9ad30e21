import fc from 'fast-check';
import { createSeededRandom, toReplicaId, toWorkloadId, type Random } from '@cloudless/base';
import type { PlacementRequest, Reservation, SchedulerNode } from '../index.js';
import { aCluster, aRequest, reservationFor } from '../testing/builders.js';
import { ReferenceCluster } from '../testing/reference/reference-cluster.js';
import { manyNodes } from '../testing/worlds.js';

const STEPS = 40;

const NOTHING = { cpuMillis: 0, memoryBytes: 0 };

const draw = (random: Random, max: number): number => Math.floor(random.next() * (max + 1));

/** Random clusters with so many nodes that the scan asks the index by use. */
interface Scenario {
  readonly name: string;
  readonly nodes: number;
  /** Largest amounts of a request. */
  readonly cpuMillis: number;
  readonly memoryBytes: number;
  /** Share of the nodes that hold a replica at first, many of which are nearly full. */
  readonly used: number;
  /** True when nodes without replicas have different shares in use. */
  readonly hasSystemReservations: boolean;
  readonly numRuns: number;
}

const SCENARIOS: readonly Scenario[] = [
  {
    ...{ name: 'empty nodes and large requests', nodes: 1_500, used: 0, numRuns: 3 },
    ...{ cpuMillis: 1_500, memoryBytes: 9_000, hasSystemReservations: false },
  },
  {
    ...{ name: 'used and full nodes and small requests', nodes: 400, used: 0.8, numRuns: 12 },
    ...{ cpuMillis: 200, memoryBytes: 1_200, hasSystemReservations: false },
  },
  {
    ...{ name: 'reservations of the system', nodes: 300, used: 0.3, numRuns: 12 },
    ...{ cpuMillis: 400, memoryBytes: 2_500, hasSystemReservations: true },
  },
];

/** Machines of four sizes, some of them without a resource. */
function aNodeOfFewSizes(random: Random, node: SchedulerNode, scenario: Scenario): SchedulerNode {
  const size = draw(random, 3);
  const capacity = { cpuMillis: 2_000 * size, memoryBytes: size === 2 ? 0 : 10_000 * (1 + size) };
  const systemReserved = scenario.hasSystemReservations
    ? { cpuMillis: draw(random, 300 * size), memoryBytes: size === 2 ? 0 : draw(random, 4_000) }
    : NOTHING;
  return { ...node, taints: [], availability: {}, capacity, systemReserved };
}

function aUniqueRequest(random: Random, index: number, scenario: Scenario): PlacementRequest {
  const cpuMillis = draw(random, 20) === 0 ? 5_000 : draw(random, scenario.cpuMillis);
  const resources = { cpuMillis, memoryBytes: draw(random, scenario.memoryBytes) };
  return aRequest({ workloadId: toWorkloadId(`unique-${index}`), resources });
}

/** A replica that leaves nothing, little or much of a node, and not the same of each resource. */
function aReplicaOn(random: Random, { id, capacity }: SchedulerNode): Reservation {
  const share = (amount: number): number =>
    Math.floor(amount * (draw(random, 2) === 0 ? 1 - draw(random, 4) / 100 : random.next()));
  const { cpuMillis, memoryBytes } = capacity;
  const resources = { cpuMillis: share(cpuMillis), memoryBytes: share(memoryBytes) };
  return reservationFor(aRequest({ resources }), `on-${id}`, id);
}

it.each(SCENARIOS)('the scan by use chooses as a comparison of all nodes: $name', (scenario) => {
  fc.assert(
    fc.property(fc.integer(), (seed) => {
      const random = createSeededRandom(seed);
      const nodes = manyNodes(random, scenario.nodes).map((node) =>
        aNodeOfFewSizes(random, node, scenario),
      );
      const cluster = aCluster(nodes);
      const reference = new ReferenceCluster();
      for (const node of nodes) reference.upsertNode(node);
      for (const node of nodes) {
        if (random.next() >= scenario.used) continue;
        const reservation = aReplicaOn(random, node);
        for (const either of [cluster, reference]) either.reserve(reservation);
      }
      for (let step = 0; step < STEPS; step += 1) {
        const request = aUniqueRequest(random, step, scenario);
        const [expected] = reference.place(request, 1);
        const [placement] = cluster.place(request, 1);
        expect(placement).toEqual(expected);
        if (placement?.placed === true) {
          const reservation = reservationFor(request, `r-${step}`, placement.nodeId);
          for (const either of [cluster, reference]) either.reserve(reservation);
        }
        const released = toReplicaId(`r-${draw(random, 2 * STEPS)}`);
        const drawn = nodes[draw(random, nodes.length - 1)] as SchedulerNode;
        const changed = aNodeOfFewSizes(random, drawn, scenario);
        for (const either of [cluster, reference]) {
          either.release(released);
          if (step % 7 === 0) either.removeNode(changed.id);
          else either.upsertNode(changed);
        }
      }
    }),
    { numRuns: scenario.numRuns },
  );
});
