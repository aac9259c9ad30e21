import { clone, create, toBinary } from '@bufbuild/protobuf';
import {
  PlanSchema,
  WorkloadPlanSchema,
  WorkloadSpecSchema,
  type WorkloadPlan,
} from '@cloudless/api';
import {
  checkSpecBytes,
  truncatePlan,
  computeOutcomeHash,
  selectPlansToDelete,
  truncateWorkloadPlan,
} from './plan-size.js';

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

describe('truncateWorkloadPlan', () => {
  it('keeps 200 steps and placements and the total numbers of a longer plan, and returns a shorter plan as it is', () => {
    const { steps, placements, totalSteps, totalPlacements } = truncateWorkloadPlan(aPlan(201));
    expect([steps.length, placements.length, totalSteps, totalPlacements]).toEqual([
      200, 200, 201, 201,
    ]);
    const whole = aPlan(200);
    expect(truncateWorkloadPlan(whole)).toBe(whole);
  });
});

describe('truncatePlan', () => {
  it.each([
    { workloads: 1, shown: 200 },
    { workloads: 60, shown: 100 },
    { workloads: 300, shown: 25 },
  ])(
    'keeps $shown of 500 steps of each workload when a plan has $workloads workloads',
    ({ workloads, shown }) => {
      const plan = truncatePlan(
        create(PlanSchema, {
          workloads: Array.from({ length: workloads }, (_, index) => aPlan(500, `web-${index}`)),
        }),
      );
      expect(plan.workloads.map(({ steps }) => steps.length)).toEqual(
        Array.from({ length: workloads }, () => shown),
      );
      expect(toBinary(PlanSchema, plan).length).toBeLessThanOrEqual(500_000);
    },
  );

  it('rejects a plan that is too large even without its steps', () => {
    const changes = [{ path: 'args', before: '', after: 'x'.repeat(600_000) }];
    expect(() => truncatePlan(create(PlanSchema, { workloads: [{ changes }] }))).toThrow(
      /^the plan takes 6\d{5} bytes without its steps, but a stored plan may take at most 500000; put fewer changes into one plan$/,
    );
  });
});

describe('checkSpecBytes', () => {
  it('accepts specs of 60 kB, and rejects specs of 120 kB, which do not fit into one transaction', () => {
    const spec = create(WorkloadSpecSchema, { args: ['x'.repeat(60_000)] });
    expect(() => checkSpecBytes([spec])).not.toThrow();
    expect(() => checkSpecBytes([spec, spec])).toThrow(
      /take 1200\d\d bytes, but one plan may write at most 100000; put fewer changes/,
    );
  });
});

describe('computeOutcomeHash', () => {
  const plan = aPlan(3);
  const changePlan = (change: (copy: WorkloadPlan) => void): WorkloadPlan => {
    const copy = clone(WorkloadPlanSchema, plan);
    change(copy);
    return copy;
  };

  it('is equal for plans that differ only in scores', () => {
    const scored = changePlan(({ placements }) =>
      placements.forEach((placement) => Object.assign(placement, { score: 0.9 })),
    );
    expect(computeOutcomeHash([scored])).toEqual(computeOutcomeHash([plan]));
  });

  it.each<{ name: string; other: readonly WorkloadPlan[] }>([
    {
      name: 'another node',
      other: [changePlan(({ placements }) => Object.assign(placements[0] ?? {}, { nodeId: 'b' }))],
    },
    { name: 'another step', other: [changePlan(({ steps }) => steps.pop())] },
    { name: 'another generation', other: [changePlan((copy) => (copy.generation = 2n))] },
    { name: 'one more workload', other: [plan, aPlan(0)] },
  ])('differs for plans with $name', ({ other }) => {
    expect(computeOutcomeHash(other)).not.toEqual(computeOutcomeHash([plan]));
  });
});

describe('selectPlansToDelete', () => {
  const storedPlans = (count: number, bytes: number) =>
    Array.from({ length: count }, (_, index) => ({
      id: `plan-${index}`,
      revision: BigInt(index),
      bytes,
    })).reverse();

  it.each([
    {
      name: 'selects no plan when the thousandth plan is stored',
      count: 999,
      bytes: 1_000,
      selected: [],
    },
    {
      name: 'selects the oldest plan when more than 1000 plans would be stored',
      count: 1_000,
      bytes: 1_000,
      selected: ['plan-0'],
    },
    {
      name: 'selects as many plans as exceed 1000',
      count: 1_002,
      bytes: 1_000,
      selected: ['plan-0', 'plan-1', 'plan-2'],
    },
    {
      name: 'selects the oldest plans when the stored plans would take more than 64 MiB',
      count: 135,
      bytes: 500_000,
      selected: ['plan-0', 'plan-1'],
    },
  ])('$name', ({ count, bytes, selected }) => {
    expect(selectPlansToDelete(storedPlans(count, bytes), bytes)).toEqual(selected);
  });

  it('selects at most 50 plans, so that their deletion fits into a transaction', () => {
    expect(selectPlansToDelete(storedPlans(2_000, 1), 1)).toHaveLength(50);
  });
});
