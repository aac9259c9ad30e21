import fc from 'fast-check';
import { aBalancer, anEndpoint, chooseId, countChoices, endpoints } from '../testing/builders.js';
import type { BalancedEndpoint, BalancingAlgorithm } from './balancer-types.js';

const ALGORITHMS: readonly BalancingAlgorithm[] = [
  'randomTwo',
  'roundRobin',
  'weighted',
  'leastConnections',
  'sourceHash',
];
const arbAlgorithm = fc.constantFrom(...ALGORITHMS);
const arbEndpoint = (index: number): fc.Arbitrary<BalancedEndpoint> =>
  fc
    .record({
      ready: fc.boolean(),
      weight: fc.constantFrom(0, 1, 50, 100, 100, 100, 1_000_000),
      workload: fc.constantFrom('a', 'b', ''),
      version: fc.integer({ min: 1, max: 2 }),
      nodeId: fc.constantFrom('here', 'there', ''),
      zone: fc.constantFrom('z1', 'z2', ''),
      region: fc.constantFrom('r1', 'r2', ''),
    })
    .map((fields) => anEndpoint({ id: `e${index}`, ...fields }));
const arbEndpoints = fc
  .integer({ min: 0, max: 8 })
  .chain((count) => fc.tuple(...Array.from({ length: count }, (_, index) => arbEndpoint(index))));

const arbStep = fc.oneof(
  { weight: 6, arbitrary: fc.record({ kind: fc.constant('choose' as const), client: fc.nat(5) }) },
  { weight: 3, arbitrary: fc.record({ kind: fc.constant('fail' as const), index: fc.nat(7) }) },
  { weight: 2, arbitrary: fc.record({ kind: fc.constant('connect' as const), index: fc.nat(7) }) },
  { weight: 2, arbitrary: fc.record({ kind: fc.constant('wait' as const), ms: fc.nat(30_000) }) },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant('set' as const), to: arbEndpoints }) },
);

describe('choices of a ServiceBalancer', () => {
  it('are never of an ejected, leaving, unready or excluded endpoint, in any history', () => {
    fc.assert(
      fc.property(
        arbAlgorithm,
        fc.boolean(),
        fc.constantFrom(undefined, 10_000),
        fc.integer({ min: 1, max: 100 }),
        arbEndpoints,
        fc.array(arbStep, { maxLength: 60 }),
        (algorithm, localityAware, sessionAffinityMs, maxEjectionPercent, first, steps) => {
          const balancer = aBalancer({
            algorithm,
            localityAware,
            sessionAffinityMs,
            outlierEjection: { consecutiveFailures: 2, baseEjectionMs: 5_000, maxEjectionPercent },
          });
          let listed: readonly BalancedEndpoint[] = first;
          let nowMs = 0;
          balancer.setEndpoints(first);
          const check = (client: number, exclude: ReadonlySet<string>): void => {
            const states = balancer.states(nowMs);
            const open = states.filter(
              ({ state, endpointId }) => state.kind === 'available' && !exclude.has(endpointId),
            );
            const clientAddress = `10.0.0.${client}`;
            const choice = balancer.choose({ clientAddress, nowMs, exclude });
            if (choice.kind === 'endpoint') {
              const chosen = listed.find(({ id }) => id === choice.endpointId);
              expect(chosen).toMatchObject({ ready: true });
              expect(chosen?.weight).toBeGreaterThan(0);
              expect(open.map(({ endpointId }) => endpointId)).toContain(choice.endpointId);
            } else {
              // A refusal only when there is nothing to choose.
              expect(open).toEqual([]);
              expect(choice.reason === 'noEndpoints').toBe(listed.length === 0);
            }
            const ejected = states.filter(({ state }) => state.kind === 'ejected').length;
            const eligible = listed.filter(({ ready, weight }) => ready && weight > 0).length;
            expect(ejected).toBeLessThanOrEqual((eligible * maxEjectionPercent) / 100);
          };
          for (const step of steps) {
            if (step.kind === 'wait') nowMs += step.ms;
            if (step.kind === 'fail') balancer.reportFailed(`e${step.index}`, nowMs);
            if (step.kind === 'connect') balancer.reportConnected(`e${step.index}`, nowMs);
            if (step.kind === 'set') balancer.setEndpoints((listed = step.to));
            if (step.kind === 'choose') {
              check(step.client, new Set());
              check(step.client, new Set(['e0', 'e3']));
            }
          }
          check(1, new Set());
        },
      ),
      { numRuns: 100 },
    );
  });

  it.each(['roundRobin', 'weighted'] as const)(
    'of %s differ from the weights by at most 1 + n * w / W, across changes of other endpoints',
    (algorithm) => {
      const weights = fc.array(fc.integer({ min: 1, max: 1_000 }), { minLength: 1, maxLength: 8 });
      fc.assert(
        fc.property(weights, fc.integer({ min: 1, max: 2_000 }), fc.integer(), (w, count, seed) => {
          const balancer = aBalancer({ algorithm, localityAware: false }, seed);
          balancer.setEndpoints(endpoints(w.length, (index) => ({ weight: w[index] ?? 1 })));
          const counts = countChoices(balancer, count);
          const total = w.reduce((sum, weight) => sum + weight, 0);
          w.forEach((weight, index) => {
            const ideal = (count * weight) / total;
            const bound = 1 + (w.length * weight) / total + 1e-6;
            expect(Math.abs((counts.get(`e${index}`) ?? 0) - ideal)).toBeLessThanOrEqual(bound);
          });
        }),
        { numRuns: 25 },
      );
    },
  );

  it('of LEAST_CONNECTIONS keep open connections in proportion to the weights', () => {
    const weights = fc.array(fc.integer({ min: 1, max: 20 }), { minLength: 1, maxLength: 8 });
    fc.assert(
      fc.property(weights, fc.integer({ min: 1, max: 500 }), (w, count) => {
        const balancer = aBalancer({ algorithm: 'leastConnections', localityAware: false });
        balancer.setEndpoints(endpoints(w.length, (index) => ({ weight: w[index] ?? 1 })));
        const counts = countChoices(balancer, count, { keepOpen: true });
        const total = w.reduce((sum, weight) => sum + weight, 0);
        w.forEach((weight, index) => {
          const ideal = (count * weight) / total;
          const bound = 1 + (w.length * weight) / total + 1e-6;
          expect(Math.abs((counts.get(`e${index}`) ?? 0) - ideal)).toBeLessThanOrEqual(bound);
        });
      }),
      { numRuns: 25 },
    );
  });

  it('of RANDOM_TWO keep open connections closer together than one random choice does', () => {
    const balancer = aBalancer({ algorithm: 'randomTwo' });
    balancer.setEndpoints(endpoints(20));
    const counts = [...countChoices(balancer, 2_000, { keepOpen: true }).values()];
    // 100 each; one random choice would spread over about 80 to 120.
    expect(Math.min(...counts)).toBeGreaterThanOrEqual(95);
    expect(Math.max(...counts)).toBeLessThanOrEqual(105);
  });

  it('of SOURCE_HASH move only the clients of the endpoint that leaves', () => {
    fc.assert(
      fc.property(fc.integer({ min: 2, max: 20 }), fc.nat(19), (count, leaving) => {
        const balancer = aBalancer({ algorithm: 'sourceHash' });
        const all = endpoints(count);
        const gone = `e${leaving % count}`;
        const clients = Array.from(
          { length: 400 },
          (_, index) => `10.7.${index >> 8}.${index & 255}`,
        );
        const choose = (): string[] =>
          clients.map((clientAddress) => chooseId(balancer, { clientAddress }));
        balancer.setEndpoints(all);
        const before = choose();
        balancer.setEndpoints(all.filter(({ id }) => id !== gone));
        const after = choose();
        const moved = clients.filter((_, index) => before[index] !== after[index]).length;
        expect(moved).toBe(before.filter((id) => id === gone).length);
        // About 1 / n: 400 clients, five standard deviations.
        const share = 1 / count;
        expect(moved).toBeLessThanOrEqual(400 * share + 5 * Math.sqrt(400 * share * (1 - share)));
        balancer.setEndpoints(all);
        expect(choose()).toEqual(before);
      }),
      { numRuns: 15 },
    );
  });

  it('of SOURCE_HASH are alike on all proxies that know the same endpoints, in any order', () => {
    fc.assert(
      fc.property(arbEndpoints, fc.integer(), (all, seed) => {
        const one = aBalancer({ algorithm: 'sourceHash' }, 1);
        const other = aBalancer({ algorithm: 'sourceHash' }, seed);
        one.setEndpoints(all);
        other.setEndpoints([...all].reverse());
        expect(countChoices(one, 50)).toEqual(countChoices(other, 50));
      }),
      { numRuns: 25 },
    );
  });

  it('give a version its share of the connections for every algorithm, wherever versions run', () => {
    fc.assert(
      fc.property(
        arbAlgorithm,
        fc.integer({ min: 1, max: 99 }),
        fc.array(fc.constantFrom('here', 'there'), { minLength: 1, maxLength: 4 }),
        fc.array(fc.constantFrom('here', 'there'), { minLength: 1, maxLength: 4 }),
        (algorithm, percent, oldNodes, newNodes) => {
          const balancer = aBalancer({ algorithm });
          const versionOf = (
            nodes: string[],
            version: number,
            weight: number,
          ): BalancedEndpoint[] =>
            nodes.map((nodeId, index) =>
              anEndpoint({ id: `v${version}-${index}`, nodeId, version, weight }),
            );
          balancer.setEndpoints([
            ...versionOf(oldNodes, 1, ((100 - percent) * 10_000) / oldNodes.length),
            ...versionOf(newNodes, 2, (percent * 10_000) / newNodes.length),
          ]);
          const counts = countChoices(balancer, 1_000);
          const ofNew = [...counts].filter(([id]) => id.startsWith('v2'));
          const seen = ofNew.reduce((sum, [, count]) => sum + count, 0) / 10;
          // Hashes of 1,000 clients vary by chance, turns do not.
          expect(Math.abs(seen - percent)).toBeLessThanOrEqual(
            algorithm === 'sourceHash' ? 8 : 0.3,
          );
        },
      ),
      { numRuns: 40 },
    );
  });

  it('give each workload of a service the share of its endpoints, and divide only the share of a workload with a canary', () => {
    const arbNodes = fc.array(fc.constantFrom('here', 'there'), { minLength: 1, maxLength: 4 });
    fc.assert(
      fc.property(
        arbAlgorithm,
        fc.integer({ min: 1, max: 99 }),
        fc.record({ old: arbNodes, canary: arbNodes, beside: arbNodes }),
        // Weight of all endpoints of the workload with the canary together.
        fc.constantFrom(100, 10_000, 1_000_000),
        (algorithm, percent, { old, canary, beside }, total) => {
          const balancer = aBalancer({ algorithm });
          const on = (nodes: string[], group: Partial<BalancedEndpoint>): BalancedEndpoint[] =>
            nodes.map((nodeId, index) =>
              anEndpoint({ ...group, id: `${group.workload}-${group.version}-${index}`, nodeId }),
            );
          const weightOf = (share: number, nodes: string[]): number =>
            (share * total) / 100 / nodes.length;
          balancer.setEndpoints([
            ...on(old, { workload: 'a', version: 1, weight: weightOf(100 - percent, old) }),
            ...on(canary, { workload: 'a', version: 2, weight: weightOf(percent, canary) }),
            ...on(beside, { workload: 'b', version: 2 }),
          ]);
          // Equal weights are no canary.
          fc.pre(weightOf(percent, canary) !== 100 || weightOf(100 - percent, old) !== 100);
          const counts = [...countChoices(balancer, 1_000)];
          const seen = (prefix: string): number =>
            counts.reduce((sum, [id, count]) => sum + (id.startsWith(prefix) ? count : 0), 0) / 10;
          const ofA = old.length + canary.length;
          const shareOfA = (100 * ofA) / (ofA + beside.length);
          // Hashes of 1,000 clients vary by chance, turns do not.
          const bound = algorithm === 'sourceHash' ? 8 : 0.5;
          expect(Math.abs(seen('a-') - shareOfA)).toBeLessThanOrEqual(bound);
          expect(Math.abs(seen('a-2') - (shareOfA * percent) / 100)).toBeLessThanOrEqual(bound);
        },
      ),
      { numRuns: 40 },
    );
  });
});
