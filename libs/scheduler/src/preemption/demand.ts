import { customAmount } from '../input/custom-resources.js';
import type { FullRequest } from '../input/request.js';
import { RESOURCE_FIELDS, type Resources } from '../input/resources.js';

/**
 * Number of amounts that all nodes and reservations have: each resource with a field of its own,
 * and the number of replicas. The custom resources of a request have the indexes from here on.
 */
export const DIMENSIONS = RESOURCE_FIELDS.length + 1;

/** Index of the number of replicas among the amounts. */
export const REPLICA_DIMENSION = RESOURCE_FIELDS.length;

/** The amounts that a request needs on a node. */
export interface Demand {
  /** Indexes of the amounts that the request needs. An amount that is not needed never blocks. */
  readonly dimensions: readonly number[];
  /** Those below {@link DIMENSIONS}. */
  readonly fixed: readonly number[];
  /** Needed amounts, by the index of the amount. */
  readonly amounts: readonly number[];
  /** Names of the custom resources with the indexes from {@link DIMENSIONS} on. */
  readonly custom: readonly string[];
}

/** Lists the amounts of a request. Each replica needs one replica slot of its node. */
export function toDemand(request: FullRequest): Demand {
  const { resources } = request;
  const amounts = [...toAmounts(resources), 1, ...Object.values(resources.custom)];
  const dimensions = amounts.flatMap((amount, index) => (amount > 0 ? [index] : []));
  const fixed = dimensions.filter((dimension) => dimension < DIMENSIONS);
  return { dimensions, fixed, amounts, custom: Object.keys(resources.custom) };
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

/**
 * Adds the amounts of one replica to those from an index on (1), or takes them away (-1).
 * @param sums - Amounts in the order of the indexes.
 */
export function addAmounts(
  sums: Float64Array,
  at: number,
  resources: Resources,
  change: 1 | -1,
): void {
  sums[at] = (sums[at] ?? 0) + change * resources.cpuMillis;
  sums[at + 1] = (sums[at + 1] ?? 0) + change * resources.memoryBytes;
  sums[at + 2] = (sums[at + 2] ?? 0) + change * resources.storageBytes;
  sums[at + 3] = (sums[at + 3] ?? 0) + change * resources.bandwidthBps;
  sums[at + 4] = (sums[at + 4] ?? 0) + change * resources.gpus;
  sums[at + REPLICA_DIMENSION] = (sums[at + REPLICA_DIMENSION] ?? 0) + change;
}

/**
 * Returns one amount of a reservation: a resource, or 1 for the replica slot.
 * @param custom - The names of the demand, for indexes of custom resources.
 */
export function amountOf(
  resources: Resources,
  dimension: number,
  custom: readonly string[] = [],
): number {
  if (dimension >= DIMENSIONS) return customAmount(resources.custom, nameOf(custom, dimension));
  const field = RESOURCE_FIELDS[dimension];
  return field === undefined ? 1 : resources[field];
}

/** Returns the name of the custom resource with an index. */
function nameOf(custom: readonly string[], dimension: number): string {
  const name = custom[dimension - DIMENSIONS];
  if (name === undefined) throw new Error(`amount ${dimension} is no amount of the demand`);
  return name;
}
