import fc from 'fast-check';
import { createSeededRandom } from '@cloudless/base';
import {
  PLACEMENT_FILTERS,
  applyFixes,
  type Cluster,
  type PlacementFilter,
  type PlacementRequest,
  type SchedulerNode,
} from './index.js';
import { aCluster, aNode, aRequest, reservationFor } from './testing/builders.js';
import {
  domainOfNode,
  findFailingFilters,
  countReplicas,
  allocatableOf,
  type PlainWorld,
} from './testing/oracle.js';
import { aWorld, type World } from './testing/worlds.js';

const worlds = fc.integer().map((seed) => ({ seed, world: aWorld(createSeededRandom(seed)) }));
const counts = fc.integer({ min: 1, max: 6 });
const RUNS = { numRuns: 300 };

/**
 * Places `count` replicas of each request of the world, one at a time, and reserves each. Calls
 * `inspect` before each decision with the cluster and an equal world.
 * @returns The world after all placements.
 */
function placeAll(
  world: World,
  count: number,
  inspect: (cluster: Cluster, plain: PlainWorld, request: PlacementRequest) => void,
): PlainWorld {
  const cluster = aCluster(world.nodes, world.reservations);
  let plain: PlainWorld = world;
  world.requests.forEach((request, index) => {
    for (let n = 0; n < count; n += 1) {
      inspect(cluster, plain, request);
      const [placement] = cluster.place(request, 1);
      if (placement?.placed !== true) continue;
      const reservation = reservationFor(request, `new-${index}-${n}`, placement.nodeId);
      cluster.reserve(reservation);
      plain = { ...plain, reservations: [...plain.reservations, reservation] };
    }
  });
  return plain;
}

/**
 * Returns the failing filters in the documented order. A required spread is left out on a node that
 * fails another filter: which domains count for it depends on the other nodes.
 */
function sortFilters(found: ReadonlySet<PlacementFilter>): readonly PlacementFilter[] {
  return PLACEMENT_FILTERS.filter(
    (filter) => found.has(filter) && (filter !== 'spread' || found.size === 1),
  );
}

/** Replica counts by which the ranking orders nodes: in the declared domain, zone and node. */
function replicaCountsOf(
  plain: PlainWorld,
  request: PlacementRequest,
  node: SchedulerNode,
): number[] {
  const { spread } = request;
  const domain = spread && domainOfNode(node, spread.topology);
  const inDomain =
    domain === undefined
      ? Infinity
      : countReplicas(
          plain,
          request,
          (other) => domainOfNode(other, spread?.topology ?? '') === domain,
        );
  const inZone = countReplicas(
    plain,
    request,
    (other) => other.region === node.region && other.zone === node.zone,
  );
  return [
    spread === undefined ? 0 : inDomain,
    inZone,
    countReplicas(plain, request, (other) => other.id === node.id),
  ];
}

describe('Cluster, compared with the brute-force oracle,', () => {
  it('accepts the same nodes as the oracle, and reports all failing filters for the others', () => {
    fc.assert(
      fc.property(worlds, counts, ({ world }, count) => {
        placeAll(world, count, (cluster, plain, request) => {
          const actual = Object.fromEntries(
            cluster
              .explain(request)
              .map((node) => [
                node.nodeId,
                sortFilters(new Set(node.fits ? [] : node.reasons.map(({ filter }) => filter))),
              ]),
          );
          const expected = Object.fromEntries(
            plain.nodes.map((node) => [
              node.id,
              sortFilters(findFailingFilters(plain, request, node)),
            ]),
          );
          expect(actual).toEqual(expected);
        });
      }),
      RUNS,
    );
  });

  it('chooses a node with the fewest replicas, and among those the best by score and id', () => {
    fc.assert(
      fc.property(worlds, counts, ({ world }, count) => {
        placeAll(world, count, (cluster, plain, request) => {
          const [placement] = cluster.place(request, 1);
          const scores = new Map(cluster.explain(request).map((node) => [node.nodeId, node.score]));
          const fitting = plain.nodes.filter(
            (node) => findFailingFilters(plain, request, node).size === 0,
          );
          const ranked = fitting
            .map((node) => ({
              id: node.id,
              key: [...replicaCountsOf(plain, request, node), -(scores.get(node.id) ?? 0)],
            }))
            .sort((a, b) => {
              const at = a.key.findIndex((value, index) => value !== b.key[index]);
              return at < 0 ? (a.id < b.id ? -1 : 1) : (a.key[at] ?? 0) < (b.key[at] ?? 0) ? -1 : 1;
            });
          expect(placement?.placed === true ? placement.nodeId : undefined).toBe(ranked[0]?.id);
        });
      }),
      RUNS,
    );
  });

  it('counts each failure of each node in the reasons of a refusal', () => {
    let runs = 0;
    let refusals = 0;
    fc.assert(
      fc.property(worlds, counts, ({ world }, count) => {
        runs += 1;
        placeAll(world, count, (cluster, _plain, request) => {
          const [placement] = cluster.place(request, 1);
          if (placement?.placed !== false) return;
          refusals += 1;
          const failures = cluster
            .explain(request)
            .flatMap((node) => (node.fits ? [] : node.reasons.map(({ filter }) => filter)));
          const counted = placement.reasons.flatMap(({ filter, nodes }) =>
            Array.from({ length: nodes }, () => filter),
          );
          expect(counted.sort()).toEqual(failures.sort());
          expect(placement.reasons.every(({ of }) => of === world.nodes.length)).toBe(true);
        });
      }),
      RUNS,
    );
    // Crowded worlds have more refusals than runs.
    expect(refusals).toBeGreaterThan(runs);
  });

  it('suggests a change after which the node fits, and none while a node fits', () => {
    let suggestions = 0;
    fc.assert(
      fc.property(worlds, ({ world }) => {
        for (const request of world.requests) {
          const cluster = aCluster(world.nodes, world.reservations);
          const suggestion = cluster.suggest(request);
          if (suggestion === undefined) continue;
          suggestions += 1;
          expect(cluster.place(request, 1)).toMatchObject([{ placed: false }]);
          const node = cluster.node(suggestion.nodeId);
          if (node === undefined) throw new Error('the suggestion names a node of the cluster');
          const changed = applyFixes(request, node, suggestion.fixes);
          cluster.upsertNode(changed.node);
          const verdict = cluster
            .explain(changed.request)
            .find(({ nodeId }) => nodeId === suggestion.nodeId);
          expect(verdict).toMatchObject({ fits: true });
        }
      }),
      RUNS,
    );
    expect(suggestions).toBeGreaterThan(50);
  });
});

describe('Cluster in random worlds', () => {
  it('never places more on a node than the node has', () => {
    fc.assert(
      fc.property(worlds, counts, ({ world }, count) => {
        // Only placements: initial reservations may exceed the capacity of a node that has shrunk.
        const after = placeAll({ ...world, reservations: [] }, count, () => undefined);
        for (const node of after.nodes) {
          const held = after.reservations.filter((reservation) => reservation.nodeId === node.id);
          expect(held.length).toBeLessThanOrEqual(node.maxReplicas ?? 110);
          const ports = held.flatMap(({ hostPorts = [] }) =>
            hostPorts.map(({ number, protocol }) => `${number}/${protocol}`),
          );
          expect(ports).toEqual([...new Set(ports)]);
          for (const field of [
            'cpuMillis',
            'memoryBytes',
            'storageBytes',
            'bandwidthBps',
            'gpus',
          ] as const) {
            const booked = held.reduce((sum, { resources }) => sum + (resources[field] ?? 0), 0);
            expect(booked).toBeLessThanOrEqual(Math.max(0, allocatableOf(node, field)));
          }
          for (const name of ['license', 'fpga']) {
            const booked = held.reduce(
              (sum, { resources }) => sum + (resources.custom?.[name] ?? 0),
              0,
            );
            expect(booked).toBeLessThanOrEqual(node.capacity.custom?.[name] ?? 0);
          }
        }
      }),
      RUNS,
    );
  });

  it('places n replicas at once as it places n replicas one by one', () => {
    fc.assert(
      fc.property(worlds, counts, ({ world }, count) => {
        for (const request of world.requests) {
          const cluster = aCluster(world.nodes, world.reservations);
          const atOnce = cluster.place(request, count);
          const oneByOne = atOnce.map((_, index) => {
            const [placement] = cluster.place(request, 1);
            if (placement?.placed === true)
              cluster.reserve(reservationFor(request, `new-${index}`, placement.nodeId));
            return placement;
          });
          expect(oneByOne).toEqual(atOnce);
        }
      }),
      RUNS,
    );
  });

  it('does not depend on the order of the input', () => {
    fc.assert(
      fc.property(
        worlds,
        counts,
        fc.infiniteStream(fc.double({ min: 0, max: 1, noNaN: true })),
        ({ world }, count, draws) => {
          const shuffle = <Item>(items: readonly Item[] | undefined): Item[] =>
            (items ?? [])
              .map((item) => ({ item, at: draws.next().value }))
              .sort((a, b) => a.at - b.at)
              .map(({ item }) => item);
          const shuffled = aCluster(
            shuffle(world.nodes).map((node) => ({ ...node, taints: shuffle(node.taints) })),
          );
          shuffle(world.reservations).forEach((reservation) => shuffled.reserve(reservation));
          const reservedFirst = aCluster([], world.reservations);
          world.nodes.forEach((node) => reservedFirst.upsertNode(node));
          for (const request of world.requests) {
            const shuffledRequest: PlacementRequest = {
              ...request,
              // The regions stay: their order is the preference.
              zones: shuffle(request.zones),
              capabilities: shuffle(request.capabilities),
              tolerations: shuffle(request.tolerations),
              hostPorts: shuffle(request.hostPorts),
              nodeAffinity: shuffle(request.nodeAffinity),
              workloadAffinity: shuffle(request.workloadAffinity),
              workloadAntiAffinity: shuffle(request.workloadAntiAffinity),
            };
            const cluster = aCluster(world.nodes, world.reservations);
            const expected = [cluster.place(request, count), cluster.explain(request)];
            expect([
              shuffled.place(shuffledRequest, count),
              shuffled.explain(shuffledRequest),
            ]).toEqual(expected);
            expect([reservedFirst.place(request, count), reservedFirst.explain(request)]).toEqual(
              expected,
            );
          }
        },
      ),
      RUNS,
    );
  });

  it('leaves no trace of reservations that were released', () => {
    fc.assert(
      fc.property(worlds, ({ world }) => {
        const cluster = aCluster(world.nodes, world.reservations);
        const copy = cluster.clone();
        world.reservations.forEach(({ replicaId }) => cluster.release(replicaId));
        const empty = aCluster(world.nodes);
        for (const request of world.requests)
          expect(cluster.explain(request)).toEqual(empty.explain(request));
        for (const { id } of world.nodes) expect(cluster.usage(id)).toEqual(empty.usage(id));
        world.reservations.forEach((reservation) => cluster.reserve(reservation));
        for (const request of world.requests)
          expect(cluster.explain(request)).toEqual(copy.explain(request));
      }),
      RUNS,
    );
  });

  it('gives equal results for equal seeds', () => {
    const decide = (seed: number): unknown => {
      const world = aWorld(createSeededRandom(seed));
      return world.requests.map((request) =>
        aCluster(world.nodes, world.reservations).place(request, 4),
      );
    };
    fc.assert(fc.property(fc.integer(), (seed) => expect(decide(seed)).toEqual(decide(seed))));
  });

  it('keeps every score term between 0 and 1', () => {
    fc.assert(
      fc.property(worlds, ({ world }) => {
        for (const request of world.requests) {
          for (const { terms } of aCluster(world.nodes, world.reservations).explain(request)) {
            for (const name of [
              'locality',
              'reliability',
              'cost',
              'utilisation',
              'networkPenalty',
            ] as const) {
              expect(terms[name]).toBeGreaterThanOrEqual(0);
              expect(terms[name]).toBeLessThanOrEqual(1);
            }
          }
        }
      }),
      RUNS,
    );
  });
});

describe('number of replicas', () => {
  const arbNodes = fc.array(
    fc.record({
      zone: fc.constantFrom('a', 'b', 'c', 'd'),
      region: fc.constantFrom('eu', 'us'),
      reliability: fc.double({ min: 0, max: 1, noNaN: true }),
    }),
    {
      minLength: 1,
      maxLength: 8,
    },
  );
  const capacity = { cpuMillis: 1e6, memoryBytes: 1e15 };

  it.each<{ readonly name: string; readonly spread?: PlacementRequest['spread'] & object }>([
    { name: 'zones without a declared spread' },
    ...(['node', 'zone', 'region'] as const).flatMap((topology) =>
      (['required', 'preferred'] as const).map((mode) => ({
        name: `the domains of a ${mode} spread over topology ${topology}`,
        spread: { topology, mode },
      })),
    ),
  ])('differs by at most 1 between $name when capacity suffices', ({ spread }) => {
    fc.assert(
      fc.property(arbNodes, fc.integer({ min: 1, max: 30 }), (drawn, count) => {
        const nodes = drawn.map((fields, index) => aNode(`n${index}`, { ...fields, capacity }));
        const request = aRequest(spread === undefined ? {} : { spread });
        const replicasByDomain = new Map(
          nodes.map((node) => [domainOfNode(node, spread?.topology ?? 'zone'), 0]),
        );
        for (const placement of aCluster(nodes).place(request, count)) {
          const node = nodes.find(({ id }) => placement.placed && id === placement.nodeId);
          if (node === undefined) throw new Error('the cluster has capacity for all replicas');
          const key = domainOfNode(node, spread?.topology ?? 'zone');
          replicasByDomain.set(key, (replicasByDomain.get(key) ?? 0) + 1);
        }
        expect(
          Math.max(...replicasByDomain.values()) - Math.min(...replicasByDomain.values()),
        ).toBeLessThanOrEqual(1);
      }),
    );
  });
});
