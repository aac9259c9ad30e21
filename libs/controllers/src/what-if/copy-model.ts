import type { Cluster } from '@cloudless/scheduler';
import { isReserved } from '../placement/cluster-model.js';
import { toReservation, toSchedulerNode } from '../placement/scheduler-input.js';
import type { SimulationSource } from '../dry-run/simulation-source.js';

/** Reservations up to which a model is cloned at once, which then takes at most 25 ms. */
const CLONED_AT_ONCE = 50_000;
/** Reservations after which other work runs while a larger model is built anew: about 10 ms. */
const RESERVATIONS_PER_SLICE = 2_000;

/**
 * Copies the scheduler's model of a source. The model of a large cluster is built anew from the
 * records, which takes more work than a clone and never keeps the main loop for long.
 * @param clonedAtOnce - Default: {@link CLONED_AT_ONCE}.
 * @returns The copy. Yields whenever other work should run.
 */
export function* copyModel(
  source: SimulationSource,
  clonedAtOnce = CLONED_AT_ONCE,
): Generator<void, Cluster> {
  const { cluster, view, nodes } = source;
  if (cluster.figures().reservations <= clonedAtOnce) return cluster.clone();
  const copy = cluster.createEmpty();
  for (const { value } of view.nodes())
    copy.upsertNode(toSchedulerNode(value, nodes.status(value.id)));
  let inSlice = 0;
  for (const { value: workload } of view.workloads())
    for (const { value: replica } of view.replicasOf(workload.uid)) {
      const template = view.version(replica.uid, replica.version)?.template;
      if (!isReserved(replica) || template === undefined) continue;
      copy.reserve(toReservation(workload, replica, template));
      inSlice += 1;
      if (inSlice < RESERVATIONS_PER_SLICE) continue;
      inSlice = 0;
      yield;
    }
  return copy;
}
