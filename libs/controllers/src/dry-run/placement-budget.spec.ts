import { PlacementBudget } from './placement-budget.js';

/** Nodes of a cluster that allows 20 placement decisions for each plan. */
const NODES = 1_000;

function countDecisions(budget: PlacementBudget): number {
  let count = 0;
  while (budget.consumeDecision()) count += 1;
  return count;
}

describe('PlacementBudget', () => {
  it('allows decisions up to 20 000 node evaluations, and then none', () => {
    const budget = new PlacementBudget(NODES);
    expect(countDecisions(budget)).toBe(20);
    expect(budget.isExhausted).toBe(true);
    expect(budget.consumeSuggestion()).toBe(false);
  });

  it('counts a suggestion as the evaluation of all nodes in each of its 8 trials', () => {
    const budget = new PlacementBudget(NODES);
    expect(budget.consumeSuggestion()).toBe(true);
    expect(countDecisions(budget)).toBe(12);
  });

  it('still allows decisions after a suggestion for which the rest was too small', () => {
    const budget = new PlacementBudget(NODES);
    expect([1, 2, 3].map(() => budget.consumeSuggestion())).toEqual([true, true, false]);
    expect(budget.isExhausted).toBe(false);
    expect(countDecisions(budget)).toBe(4);
  });

  it('allows decisions again in each slice, up to the total of all slices', () => {
    const budget = new PlacementBudget(NODES, { slice: 3_000, total: 7_000 });
    const counts = [1, 2, 3, 4].map(() => {
      budget.beginSlice();
      return countDecisions(budget);
    });
    expect(counts).toEqual([3, 3, 1, 0]);
    expect(budget.isExhausted).toBe(true);
  });

  it('grants 20 000 new replicas for all workloads of a slice together', () => {
    const budget = new PlacementBudget(NODES);
    expect([15_000, 1_000_000, 1].map((wanted) => budget.consumeNewReplicas(wanted))).toEqual([
      15_000, 5_000, 0,
    ]);
    budget.beginSlice();
    expect(budget.consumeNewReplicas(3)).toBe(3);
  });
});
