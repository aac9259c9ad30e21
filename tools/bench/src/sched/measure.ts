import { systemClock } from '@cloudless/app-kit';
import type { Cluster } from '@cloudless/scheduler';
import { summarise, type Summary } from '../report.js';

/** Figures of a case. */
export interface CaseFigures {
  readonly placements: number;
  readonly seconds: number;
  readonly cpuSeconds: number;
  readonly placementsPerSecond: number;
  readonly placementsPerCpuSecond: number;
  /** Not all placements were made: the budget was used up. */
  readonly cutByBudget: boolean;
  /** Of the calls, microseconds. */
  readonly callUs: Summary;
  /** What the scheduler counted, per placement. */
  readonly schedulerPerPlacement?: Readonly<Record<string, number>>;
}

/** Time between two readings of the CPU time, which take as long as a placement each. */
const BUDGET_CHECK_MS = 20;

const round = (value: number): number => Number(value.toPrecision(4));

/** Counters of the scheduler. A counter that grows with the placements is divided by them. */
const COUNTERS = ['nodesExamined', 'leavesUpdated', 'treesBuilt', 'scans'] as const;

function readCounters(cluster: Cluster): Readonly<Record<string, number>> {
  const figures = cluster.figures();
  return Object.fromEntries(COUNTERS.map((name) => [name, figures[name]]));
}

/**
 * Measures calls that place replicas, until all are made or the budget of CPU time is used up.
 * @param cluster - Returns the cluster that the calls use.
 * @param calls - Number of calls.
 * @param call - Makes one call; returns its number of placements.
 * @param budgetSeconds - CPU seconds after which no further call begins.
 */
export function measureCalls(
  cluster: Cluster,
  calls: number,
  call: (index: number) => number,
  budgetSeconds: number,
): CaseFigures {
  const samples: number[] = [];
  let placements = 0;
  const countersBefore = readCounters(cluster);
  const startedAt = systemClock.now();
  const cpuBefore = process.cpuUsage();
  const usedSeconds = (): number => {
    const { user, system } = process.cpuUsage(cpuBefore);
    return (user + system) / 1e6;
  };
  let nextCheckAt = startedAt + BUDGET_CHECK_MS;
  for (let index = 0; index < calls; index += 1) {
    const begunAt = systemClock.now();
    placements += call(index);
    samples.push((systemClock.now() - begunAt) * 1_000);
    if (systemClock.now() < nextCheckAt) continue;
    if (usedSeconds() > budgetSeconds) break;
    nextCheckAt = systemClock.now() + BUDGET_CHECK_MS;
  }
  const cpuSeconds = usedSeconds();
  const seconds = (systemClock.now() - startedAt) / 1_000;
  const countersAfter = readCounters(cluster);
  return {
    placements,
    seconds: round(seconds),
    cpuSeconds: round(cpuSeconds),
    placementsPerSecond: Math.round(placements / seconds),
    placementsPerCpuSecond: Math.round(placements / cpuSeconds),
    cutByBudget: samples.length < calls,
    callUs: summarise(samples),
    schedulerPerPlacement: Object.fromEntries(
      COUNTERS.map((name) => [
        name,
        round(((countersAfter[name] ?? 0) - (countersBefore[name] ?? 0)) / Math.max(1, placements)),
      ]),
    ),
  };
}
