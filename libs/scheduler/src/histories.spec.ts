import fc from 'fast-check';
import { createCluster } from './index.js';
import { TwinClusters, type HistoryStep } from './testing/histories.js';

const pick = fc.nat(40);
const count = fc.integer({ min: 1, max: 12 });
const steps: fc.Arbitrary<HistoryStep[]> = fc.array(
  fc.oneof(
    { weight: 1, arbitrary: fc.record({ kind: fc.constant('upsertNode' as const), pick }) },
    { weight: 4, arbitrary: fc.record({ kind: fc.constant('changeNode' as const), pick }) },
    { weight: 1, arbitrary: fc.record({ kind: fc.constant('removeNode' as const), pick }) },
    { weight: 2, arbitrary: fc.record({ kind: fc.constant('reserve' as const), pick }) },
    { weight: 5, arbitrary: fc.record({ kind: fc.constant('release' as const), pick }) },
    { weight: 3, arbitrary: fc.record({ kind: fc.constant('try' as const), pick, count }) },
    { weight: 8, arbitrary: fc.record({ kind: fc.constant('place' as const), pick, count }) },
    { weight: 1, arbitrary: fc.record({ kind: fc.constant('placeOn' as const), pick }) },
  ),
  { minLength: 5, maxLength: 40 },
);

const withManyStates = fc.array(
  fc.oneof(
    { weight: 1, arbitrary: fc.record({ kind: fc.constant('changeOften' as const), pick }) },
    { weight: 2, arbitrary: fc.record({ kind: fc.constant('changeNode' as const), pick }) },
    { weight: 4, arbitrary: fc.record({ kind: fc.constant('place' as const), pick, count }) },
    { weight: 2, arbitrary: fc.record({ kind: fc.constant('try' as const), pick, count }) },
  ),
  { minLength: 5, maxLength: 16 },
);

describe('Cluster, compared with the plain scan over any history,', () => {
  it('chooses the same nodes with the same scores, and refuses for the same reasons', () => {
    fc.assert(
      fc.property(fc.integer(), steps, (seed, history) => {
        const twins = new TwinClusters(seed);
        for (const step of history) {
          const outcome = twins.take(step);
          if (outcome !== undefined) expect(outcome.actual).toEqual(outcome.expected);
        }
      }),
      { numRuns: 150 },
    );
  });

  it('chooses the same nodes in clusters with deep trees', () => {
    fc.assert(
      fc.property(fc.integer(), fc.nat(120), steps, (seed, nodes, history) => {
        const twins = new TwinClusters(seed, nodes);
        for (const step of history) {
          const outcome = twins.take(step);
          if (outcome !== undefined) expect(outcome.actual).toEqual(outcome.expected);
        }
      }),
      { numRuns: 40 },
    );
  });

  it('chooses the same nodes after nodes have been in very many states, and forgets the states', () => {
    fc.assert(
      fc.property(fc.integer(), withManyStates, (seed, history) => {
        const twins = new TwinClusters(seed, 6);
        for (const step of history) {
          const outcome = twins.take(step);
          if (outcome !== undefined) expect(outcome.actual).toEqual(outcome.expected);
        }
        const { nodeClasses, nodes } = twins.cluster.figures();
        expect(nodeClasses).toBeLessThanOrEqual(257 + 2 * nodes);
      }),
      { numRuns: 30 },
    );
  });

  it('decides as a cluster that is built anew from the same nodes and reservations', () => {
    fc.assert(
      fc.property(fc.integer(), steps, (seed, history) => {
        const twins = new TwinClusters(seed);
        for (const step of history) twins.take(step);
        const fresh = createCluster();
        for (const node of twins.nodes.values()) fresh.upsertNode(node);
        for (const reservation of twins.reservations.values()) fresh.reserve(reservation);
        for (const request of twins.requests) {
          expect(twins.cluster.place(request, 5)).toEqual(fresh.place(request, 5));
          expect(twins.cluster.explain(request)).toEqual(fresh.explain(request));
        }
        for (const { id } of twins.nodes.values())
          expect(twins.cluster.usage(id)).toEqual(fresh.usage(id));
        const copy = twins.cluster.clone();
        for (const request of twins.requests)
          expect(copy.place(request, 5)).toEqual(fresh.place(request, 5));
      }),
      { numRuns: 60 },
    );
  });
});
