import {
  addCustom,
  checkCustom,
  clampCustom,
  NO_CUSTOM,
  toCustomAmounts,
  type CustomAmounts,
} from './custom-resources.js';
import type { Problems } from './problems.js';

/** Amounts of each resource. Whole numbers of at least 0. */
export interface Resources {
  /** Thousandths of a core. */
  readonly cpuMillis: number;
  readonly memoryBytes: number;
  readonly storageBytes: number;
  /** Egress bandwidth in bits per second. */
  readonly bandwidthBps: number;
  readonly gpus: number;
  /** Resources that the cluster's operators have named, in alphabetical order without zeros. */
  readonly custom: CustomAmounts;
}

/** {@link Resources} of which only CPU and memory are required; absent fields are 0. */
export type ResourceAmounts = Pick<Resources, 'cpuMillis' | 'memoryBytes'> & Partial<Resources>;

/** A resource with a field of its own. */
export type ResourceField = Exclude<keyof Resources, 'custom'>;

/** All resources with a field of their own, in the order in which a shortage is reported. */
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
  custom: NO_CUSTOM,
};

/** Fills in 0 for absent fields. */
export function toResources(amounts: ResourceAmounts): Resources {
  return { ...NO_RESOURCES, ...amounts, custom: toCustomAmounts(amounts.custom) };
}

export function addResources(a: Resources, b: Resources): Resources {
  return {
    cpuMillis: a.cpuMillis + b.cpuMillis,
    memoryBytes: a.memoryBytes + b.memoryBytes,
    storageBytes: a.storageBytes + b.storageBytes,
    bandwidthBps: a.bandwidthBps + b.bandwidthBps,
    gpus: a.gpus + b.gpus,
    custom: addCustom(a.custom, b.custom, 1),
  };
}

export function subtractResources(a: Resources, b: Resources): Resources {
  return {
    cpuMillis: a.cpuMillis - b.cpuMillis,
    memoryBytes: a.memoryBytes - b.memoryBytes,
    storageBytes: a.storageBytes - b.storageBytes,
    bandwidthBps: a.bandwidthBps - b.bandwidthBps,
    gpus: a.gpus - b.gpus,
    custom: addCustom(a.custom, b.custom, -1),
  };
}

/** Replaces negative amounts by 0. */
export function clampToZero(a: Resources): Resources {
  return {
    cpuMillis: Math.max(0, a.cpuMillis),
    memoryBytes: Math.max(0, a.memoryBytes),
    storageBytes: Math.max(0, a.storageBytes),
    bandwidthBps: Math.max(0, a.bandwidthBps),
    gpus: Math.max(0, a.gpus),
    custom: clampCustom(a.custom),
  };
}

/**
 * Returns the first resource field of which `need` exceeds the free amount; custom resources are
 * not considered. A resource that is not
 * requested never blocks, even on a node that has shrunk below its reservations.
 */
export function findShortage(
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
 * Adds a problem for each amount that is not a whole number of at least 0. Fractions would
 * accumulate rounding errors as replicas come and go.
 */
export function checkAmounts(problems: Problems, path: string, amounts: ResourceAmounts): void {
  for (const field of RESOURCE_FIELDS) {
    const amount = amounts[field] ?? 0;
    // Checked here first: this runs for every replica, and nearly always finds nothing.
    if (!Number.isSafeInteger(amount) || amount < 0)
      problems.requireWholeNumber(`${path}.${field}`, amount, 0);
  }
  checkCustom(problems, path, amounts.custom);
}
