import type { ResourceField } from './resources.js';

/**
 * Formats a shortage for people: `needs 500 m CPU, 200 m free`, `needs 2 GiB memory, 1.5 GiB free`.
 */
export function describeShortage(field: ResourceField, need: number, free: number): string {
  const rounded = [UNITS[field].format(need), UNITS[field].format(free)];
  // Use the smallest unit when both rounded amounts are equal, for example 2 GiB and one byte less.
  const [needed, left] =
    rounded[0] === rounded[1]
      ? [`${need} ${UNITS[field].smallest}`, `${free} ${UNITS[field].smallest}`]
      : rounded;
  return `needs ${needed} ${UNITS[field].noun}, ${left} free`;
}

/** Texts for the amounts of one resource. */
interface Unit {
  readonly noun: string;
  /** Name of the smallest unit, in which amounts are given. */
  readonly smallest: string;
  readonly format: (amount: number) => string;
}

const UNITS: Readonly<Record<ResourceField, Unit>> = {
  cpuMillis: { noun: 'CPU', smallest: 'm', format: (amount) => `${amount} m` },
  memoryBytes: {
    noun: 'memory',
    smallest: 'B',
    format: (amount) => formatScaled(amount, 1024, ['B', 'KiB', 'MiB', 'GiB', 'TiB']),
  },
  storageBytes: {
    noun: 'storage',
    smallest: 'B',
    format: (amount) => formatScaled(amount, 1024, ['B', 'KiB', 'MiB', 'GiB', 'TiB']),
  },
  bandwidthBps: {
    noun: 'bandwidth',
    smallest: 'bit/s',
    format: (amount) => formatScaled(amount, 1000, ['bit/s', 'kbit/s', 'Mbit/s', 'Gbit/s']),
  },
  gpus: { noun: 'GPUs', smallest: '', format: String },
};

/** Formats the amount with one decimal in the largest unit that gives at least 1. */
function formatScaled(amount: number, step: number, units: readonly string[]): string {
  let value = amount;
  let index = 0;
  while (value >= step && index < units.length - 1) {
    value /= step;
    index += 1;
  }
  return `${Math.round(value * 10) / 10} ${units[index]}`;
}
