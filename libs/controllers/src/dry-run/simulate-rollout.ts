import { create } from '@bufbuild/protobuf';
import { WorkloadSpecSchema } from '@cloudless/api';
import type { WorkloadRecord } from '@cloudless/api/store';
import type { Clock } from '@cloudless/base';
import { toRolloutSettings, toRolloutState } from '../rollout/rollout-state.js';
import { startGatedWait } from './assumed-gates.js';
import type { DryRunCluster } from './dry-run-cluster.js';
import type { DryRunResult } from './dry-run-result.js';
import { GROUPED_PER_SLICE } from './replica-groups.js';
import {
  isUpdateOfAll,
  maySelectSome,
  selectAll,
  selectSome,
  type RolloutStart,
} from './replica-selection.js';
import { RolloutSimulation } from './rollout-simulation.js';
import { summarizeRollout } from './summarize-rollout.js';

export interface DryRunDeps {
  readonly clock: Pick<Clock, 'wallTime'>;
}

/**
 * Predicts the changes of a workload until nothing more happens by itself. Uses the functions of
 * the controllers and assumes that nothing fails: new replicas become ready, stops are confirmed,
 * waits and gates pass, and every promotion is granted. Of a workload with very many replicas, only
 * some are simulated, and the others are counted. The predicted replicas and the predicted rollout
 * state are left in the simulated cluster.
 * @returns The prediction. Yields whenever other work should run; the records below the simulated
 *   cluster must not change until the end.
 */
export function* simulateRollout(
  cluster: DryRunCluster,
  deps: DryRunDeps,
  workload: WorkloadRecord,
): Generator<void, DryRunResult> {
  const simulation = yield* startSimulation(cluster, workload, readStart(cluster, deps, workload));
  yield* simulation.run();
  const result = summarizeRollout(cluster, workload, simulation);
  if (cluster.replicasOf(workload.uid).length >= GROUPED_PER_SLICE) yield;
  return result;
}

/** Reads the rollout of a workload as before the first decision about the change. */
function readStart(
  cluster: DryRunCluster,
  { clock }: DryRunDeps,
  { uid, spec }: WorkloadRecord,
): RolloutStart {
  const nowMs = clock.wallTime();
  return {
    nowMs,
    settings: toRolloutSettings(spec ?? create(WorkloadSpecSchema)),
    state: startGatedWait(toRolloutState(cluster.copyControl(uid)), nowMs),
  };
}

/** Starts the simulation of some replicas where that predicts the same, else of all replicas. */
function* startSimulation(
  cluster: DryRunCluster,
  workload: WorkloadRecord,
  start: RolloutStart,
): Generator<void, RolloutSimulation> {
  const replicas = cluster.replicasOf(workload.uid);
  if (maySelectSome(cluster, workload, start, replicas.length)) {
    const isLarge = replicas.length >= GROUPED_PER_SLICE;
    // To list so many replicas is work for a slice, and so is what follows the selection.
    if (isLarge) yield;
    const some = yield* selectSome(cluster, workload, replicas, start.nowMs);
    if (isLarge) yield;
    const simulation = new RolloutSimulation(cluster, workload, start, some);
    if (isUpdateOfAll(simulation.first.observed)) return simulation;
  }
  const all = selectAll(cluster, workload, replicas);
  return new RolloutSimulation(cluster, workload, start, all);
}
