import { clone, create, toBinary } from '@bufbuild/protobuf';
import {
  PlanSchema,
  WorkloadPlanSchema,
  WorkloadSpecSchema,
  type WorkloadPlan,
} from '@cloudless/api';
import { checkSpecBytes, keptPlan, outcomeOf, plansToDrop, shownPlan } from './plan-size.js';

const aPlan = (steps: number, name = 'web'): WorkloadPlan =>
  create(WorkloadPlanSchema, {
    name,
    steps: Array.from({ length: steps }, (_, index) => ({
      description: `create 1 of version ${index}`,
      ready: 1,
      live: 2,
    })),
    placements: Array.from({ length: steps }, () => ({ nodeId: 'a-node-with-a-name', score: 0.5 })),
    totalSteps: steps,
    totalPlacements: steps,
  });

describe('a plan', () => {
  it('shows 200 steps and placements of a workload, and says how many there are', () => {
    const { steps, placements, totalSteps, totalPlacements } = shownPlan(aPlan(201));
    expect([steps.length, placements.length, totalSteps, totalPlacements]).toEqual([
      200, 200, 201, 201,
    ]);
    const whole = aPlan(200);
    expect(shownPlan(whole)).toBe(whole);
  });

  it.each([
    { workloads: 1, shown: 200 },
    { workloads: 60, shown: 100 },
    { workloads: 300, shown: 25 },
  ])('of $workloads workloads keeps $shown steps of each', ({ workloads, shown }) => {
    const plan = keptPlan(
      create(PlanSchema, {
        workloads: Array.from({ length: workloads }, (_, index) => aPlan(500, `web-${index}`)),
      }),
    );
    expect(plan.workloads.map(({ steps }) => steps.length)).toEqual(
      Array.from({ length: workloads }, () => shown),
    );
    expect(toBinary(PlanSchema, plan).length).toBeLessThanOrEqual(500_000);
  });

  it('that is too large without any step is refused', () => {
    const changes = [{ path: 'args', before: '', after: 'x'.repeat(600_000) }];
    expect(() => keptPlan(create(PlanSchema, { workloads: [{ changes }] }))).toThrow(
      /^the plan takes 6\d{5} bytes without its steps, and at most 500000 are kept of one; put fewer changes into a plan$/,
    );
  });

  it('whose specs would not fit into one transaction is refused', () => {
    const spec = create(WorkloadSpecSchema, { args: ['x'.repeat(60_000)] });
    expect(() => checkSpecBytes([spec])).not.toThrow();
    expect(() => checkSpecBytes([spec, spec])).toThrow(
      /take 1200\d\d bytes, and one plan writes at most 100000; put fewer changes/,
    );
  });
});

describe('the outcome of plans', () => {
  const plan = aPlan(3);
  const changed = (change: (copy: WorkloadPlan) => void): WorkloadPlan => {
    const copy = clone(WorkloadPlanSchema, plan);
    change(copy);
    return copy;
  };

  it('is the same for the same plans, whatever the scores', () => {
    const scored = changed(({ placements }) =>
      placements.forEach((placement) => Object.assign(placement, { score: 0.9 })),
    );
    expect(outcomeOf([scored])).toEqual(outcomeOf([plan]));
  });

  it.each<{ name: string; other: readonly WorkloadPlan[] }>([
    {
      name: 'another node',
      other: [changed(({ placements }) => Object.assign(placements[0] ?? {}, { nodeId: 'b' }))],
    },
    { name: 'another step', other: [changed(({ steps }) => steps.pop())] },
    { name: 'another generation', other: [changed((copy) => (copy.generation = 2n))] },
    { name: 'one more workload', other: [plan, aPlan(0)] },
  ])('differs for $name', ({ other }) => {
    expect(outcomeOf(other)).not.toEqual(outcomeOf([plan]));
  });
});

describe('one more plan', () => {
  const kept = (count: number, bytes: number) =>
    Array.from({ length: count }, (_, index) => ({
      id: `plan-${index}`,
      revision: BigInt(index),
      bytes,
    })).reverse();

  it.each([
    { name: 'the thousandth pushes none out', count: 999, bytes: 1_000, gone: [] },
    { name: 'the next one pushes out the oldest', count: 1_000, bytes: 1_000, gone: ['plan-0'] },
    {
      name: 'and as many as it takes',
      count: 1_002,
      bytes: 1_000,
      gone: ['plan-0', 'plan-1', 'plan-2'],
    },
    { name: '64 MiB are enough too', count: 135, bytes: 500_000, gone: ['plan-0', 'plan-1'] },
  ])('$name', ({ count, bytes, gone }) => {
    expect(plansToDrop(kept(count, bytes), bytes)).toEqual(gone);
  });

  it('writes no more than a transaction takes', () => {
    expect(plansToDrop(kept(2_000, 1), 1)).toHaveLength(50);
  });
});
