import type { FullRequest } from '../input/request.js';
import { RESOURCE_FIELDS, type Resources } from '../input/resources.js';

/** Number of amounts of a node or a reservation: each resource, and the number of replicas. */
export const DIMENSIONS = RESOURCE_FIELDS.length + 1;

/** Index of the number of replicas among the amounts. */
export const REPLICA_DIMENSION = RESOURCE_FIELDS.length;

/** The amounts that a request needs on a node. */
export interface Demand {
  /** Indexes of the amounts that the request needs. An amount that is not needed never blocks. */
  readonly dimensions: readonly number[];
  /** Needed amounts, by the index of the amount. */
  readonly amounts: readonly number[];
}

/** Lists the amounts of a request. Each replica needs one replica slot of its node. */
export function toDemand(request: FullRequest): Demand {
  const amounts = [...toAmounts(request.resources), 1];
  const dimensions = amounts.flatMap((amount, index) => (amount > 0 ? [index] : []));
  return { dimensions, amounts };
}

/** Lists the amounts of resources in the order of the indexes. */
export function toAmounts(resources: Resources): readonly number[] {
  return [
    resources.cpuMillis,
    resources.memoryBytes,
    resources.storageBytes,
    resources.bandwidthBps,
    resources.gpus,
  ];
}

/** Returns one amount of a reservation: a resource, or 1 for the replica slot. */
export function amountOf(resources: Resources, dimension: number): number {
  const field = RESOURCE_FIELDS[dimension];
  return field === undefined ? 1 : resources[field];
}
