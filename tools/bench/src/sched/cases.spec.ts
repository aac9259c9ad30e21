import { Violations } from '../violations.js';
import { runBasic, runConstraints, runHetero, runStorm, type SchedOptions } from './cases.js';
import type { CaseFigures } from './measure.js';
import { runPreempt } from './preempt-case.js';

const NODES = 200;
const optionsOf = (violations: Violations): SchedOptions => ({
  seed: 1,
  nodes: NODES,
  budgetSeconds: Infinity,
  divisor: 10,
  violations,
});

/** Nodes whose score was computed, by scans and by winner trees, for each placement. */
const scoresOf = ({ schedulerPerPlacement: counted = {} }: CaseFigures): number =>
  (counted['nodesExamined'] ?? Number.NaN) + (counted['leavesUpdated'] ?? Number.NaN);

describe('benchmarks of the scheduler', () => {
  it.each([
    { name: 'equal replicas in calls of 100', run: runBasic, of: 'batches', max: 4 },
    { name: 'equal replicas, one in each call', run: runBasic, of: 'oneAtATime', max: 8 },
    { name: 'replicas that all differ', run: runHetero, of: 'unique', max: NODES },
    { name: 'a required zone spread', run: runConstraints, of: 'requiredZoneSpread', max: 8 },
    { name: 'a preferred rack spread', run: runConstraints, of: 'preferredRackSpread', max: 8 },
    { name: 'node affinity', run: runConstraints, of: 'nodeAffinity', max: 8 },
    { name: 'workload affinity', run: runConstraints, of: 'workloadAffinity', max: 8 },
    { name: 'workload anti-affinity', run: runConstraints, of: 'antiAffinity', max: 8 },
    { name: 'replicas of lost nodes', run: runStorm, of: 'replicasReplaced', max: 8 },
  ])('compute at most $max scores for each placement of $name', ({ run, of, max }) => {
    const violations = new Violations();
    const figures = run(optionsOf(violations))[of] as CaseFigures;
    expect(violations.texts).toEqual([]);
    expect(scoresOf(figures)).toBeLessThanOrEqual(max);
  });

  it('evict only replicas of lower priority, and place every replica of the streams', () => {
    const violations = new Violations();
    const { stream, different, antiAffinity } = runPreempt(optionsOf(violations));
    expect(violations.texts).toEqual([]);
    for (const figures of [stream, different, antiAffinity]) expect(figures?.placements).toBe(500);
  });
});
