import fc from 'fast-check';
import { createSeededRandom, toReplicaId, toWorkloadId, type Random } from '@cloudless/base';
import type { PlacementRequest, SchedulerNode } from '../index.js';
import { aCluster, aRequest, reservationFor } from '../testing/builders.js';
import { ReferenceCluster } from '../testing/reference/reference-cluster.js';
import { manyNodes } from '../testing/worlds.js';

/** So many that the scan asks the index by use. */
const NODES = 1_500;
const STEPS = 40;

const NOTHING = { cpuMillis: 0, memoryBytes: 0 };

const draw = (random: Random, max: number): number => Math.floor(random.next() * (max + 1));

/** Machines of four sizes, some of them without a resource. */
function aNodeOfFewSizes(random: Random, node: SchedulerNode): SchedulerNode {
  const size = draw(random, 3);
  const capacity = { cpuMillis: 2_000 * size, memoryBytes: size === 2 ? 0 : 10_000 * (1 + size) };
  return { ...node, taints: [], availability: {}, capacity, systemReserved: NOTHING };
}

function aUniqueRequest(random: Random, index: number): PlacementRequest {
  const cpuMillis = draw(random, 20) === 0 ? 5_000 : draw(random, 1_500);
  const resources = { cpuMillis, memoryBytes: draw(random, 9_000) };
  return aRequest({ workloadId: toWorkloadId(`unique-${index}`), resources });
}

it('the scan by use and a comparison of all nodes choose the same node', () => {
  fc.assert(
    fc.property(fc.integer(), (seed) => {
      const random = createSeededRandom(seed);
      const nodes = manyNodes(random, NODES).map((node) => aNodeOfFewSizes(random, node));
      const cluster = aCluster(nodes);
      const reference = new ReferenceCluster();
      for (const node of nodes) reference.upsertNode(node);
      for (let step = 0; step < STEPS; step += 1) {
        const request = aUniqueRequest(random, step);
        const [expected] = reference.place(request, 1);
        const [placement] = cluster.place(request, 1);
        expect(placement).toEqual(expected);
        if (placement?.placed === true) {
          const reservation = reservationFor(request, `r-${step}`, placement.nodeId);
          for (const either of [cluster, reference]) either.reserve(reservation);
        }
        const released = toReplicaId(`r-${draw(random, 2 * STEPS)}`);
        const changed = aNodeOfFewSizes(random, nodes[draw(random, NODES - 1)] as SchedulerNode);
        for (const either of [cluster, reference]) {
          either.release(released);
          if (step % 7 === 0) either.removeNode(changed.id);
          else either.upsertNode(changed);
        }
      }
    }),
    { numRuns: 3 },
  );
});
