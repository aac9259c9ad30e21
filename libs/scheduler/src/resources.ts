import type { Problems } from './problems.js';

/** Amounts of what a node has and a replica books. Whole numbers, 0 or more. */
export interface Resources {
  /** Thousandths of a core. */
  readonly cpuMillis: number;
  readonly memoryBytes: number;
  readonly storageBytes: number;
  /** Egress, bits per second. */
  readonly bandwidthBps: number;
  readonly gpus: number;
}

/** {@link Resources} as callers write them: what is left out is 0. */
export type ResourceAmounts = Pick<Resources, 'cpuMillis' | 'memoryBytes'> & Partial<Resources>;

export type ResourceField = keyof Resources;

/** Every kind of resource, in the order in which a shortage is reported. */
export const RESOURCE_FIELDS = [
  'cpuMillis',
  'memoryBytes',
  'storageBytes',
  'bandwidthBps',
  'gpus',
] as const satisfies readonly ResourceField[];

export const NO_RESOURCES: Resources = {
  cpuMillis: 0,
  memoryBytes: 0,
  storageBytes: 0,
  bandwidthBps: 0,
  gpus: 0,
};

/** Fills in the zeros. */
export function toResources(amounts: ResourceAmounts): Resources {
  return { ...NO_RESOURCES, ...amounts };
}

export function plus(a: Resources, b: Resources): Resources {
  return {
    cpuMillis: a.cpuMillis + b.cpuMillis,
    memoryBytes: a.memoryBytes + b.memoryBytes,
    storageBytes: a.storageBytes + b.storageBytes,
    bandwidthBps: a.bandwidthBps + b.bandwidthBps,
    gpus: a.gpus + b.gpus,
  };
}

export function minus(a: Resources, b: Resources): Resources {
  return {
    cpuMillis: a.cpuMillis - b.cpuMillis,
    memoryBytes: a.memoryBytes - b.memoryBytes,
    storageBytes: a.storageBytes - b.storageBytes,
    bandwidthBps: a.bandwidthBps - b.bandwidthBps,
    gpus: a.gpus - b.gpus,
  };
}

/** What is below 0 becomes 0. */
export function atLeastNothing(a: Resources): Resources {
  return {
    cpuMillis: Math.max(0, a.cpuMillis),
    memoryBytes: Math.max(0, a.memoryBytes),
    storageBytes: Math.max(0, a.storageBytes),
    bandwidthBps: Math.max(0, a.bandwidthBps),
    gpus: Math.max(0, a.gpus),
  };
}

/**
 * The first kind of which `need` asks more than there is above `allocated`.
 * A kind that is not asked for never blocks, even where a node has shrunk below what is booked on
 * it.
 */
export function firstShortage(
  need: Resources,
  allocatable: Resources,
  allocated: Resources,
): ResourceField | undefined {
  for (const field of RESOURCE_FIELDS) {
    if (need[field] > 0 && allocated[field] + need[field] > allocatable[field]) return field;
  }
  return undefined;
}

/**
 * Notes each amount that is not a whole number of 0 or more: fractions would drift as replicas come
 * and go.
 */
export function checkAmounts(problems: Problems, path: string, amounts: ResourceAmounts): void {
  for (const [field, amount] of Object.entries({ ...NO_RESOURCES, ...amounts }))
    problems.wholeNumber(`${path}.${field}`, amount, 0);
}
