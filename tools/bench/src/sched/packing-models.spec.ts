import fc from 'fast-check';
import { createSeededRandom } from '@cloudless/base';
import { SampledBestFit, computeLowerBound, type Amounts } from './packing-models.js';

const amounts = (cpuMillis: number, memoryMib: number): Amounts => ({ cpuMillis, memoryMib });

describe('computeLowerBound', () => {
  it.each([
    { name: 'no demand', demands: [], bound: 0 },
    { name: 'the resource that is scarcer', demands: [amounts(100, 900), amounts(1, 1)], bound: 2 },
    { name: 'the largest nodes first', demands: [amounts(1_500, 1)], bound: 1 },
  ])('counts $name', ({ demands, bound }) => {
    const nodes = [amounts(1_000, 500), amounts(2_000, 500), amounts(500, 500)];
    expect(computeLowerBound(nodes, demands)).toBe(bound);
  });
});

describe('SampledBestFit', () => {
  it('never exceeds a node, and refuses only what fits nowhere', () => {
    const demandsOf = fc.array(
      fc.tuple(fc.integer({ min: 1, max: 9 }), fc.integer({ min: 1, max: 9 })),
    );
    fc.assert(
      fc.property(
        demandsOf,
        fc.integer({ min: 1, max: 4 }),
        fc.integer(),
        (demands, sample, seed) => {
          const nodes = Array.from({ length: 4 }, () => amounts(10, 10));
          const model = new SampledBestFit(nodes, sample, createSeededRandom(seed));
          const free = nodes.map((node) => ({ ...node }));
          demands.forEach(([cpu, memory], replica) => {
            const demand = amounts(cpu, memory);
            const index = model.place(replica, demand);
            if (index === undefined) {
              expect(free.some((f) => f.cpuMillis >= cpu && f.memoryMib >= memory)).toBe(false);
              return;
            }
            const node = free[index] ?? amounts(0, 0);
            free[index] = amounts(node.cpuMillis - cpu, node.memoryMib - memory);
            expect(free[index].cpuMillis).toBeGreaterThanOrEqual(0);
            expect(free[index].memoryMib).toBeGreaterThanOrEqual(0);
          });
        },
      ),
    );
  });

  it('chooses the fullest node that fits when it looks at all nodes', () => {
    const nodes = [amounts(100, 100), amounts(50, 50), amounts(10, 10)];
    const model = new SampledBestFit(nodes, nodes.length, createSeededRandom(1));
    expect(model.place(0, amounts(40, 40))).toBe(1);
  });
});
