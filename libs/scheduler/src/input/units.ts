import type { ResourceField } from './resources.js';

/**
 * Formats an amount without rounding, with its unit and the name of the resource: `500m CPU`,
 * `1537Mi memory`.
 */
export function describeAmount(field: ResourceField, amount: number): string {
  const isBytes = field === 'memoryBytes' || field === 'storageBytes';
  const text = isBytes ? formatWholeBytes(amount) : UNITS[field].format(amount);
  return `${text} ${UNITS[field].noun}`;
}

/** Formats an amount of a custom resource: `2 example.com/license`. */
export function describeCustomAmount(name: string, amount: number): string {
  return `${amount} ${name}`;
}

function formatWholeBytes(amount: number): string {
  if (amount % GI === 0) return `${amount / GI}Gi`;
  return amount % MI === 0 ? `${amount / MI}Mi` : String(amount);
}

/**
 * Formats a shortage for people: `needs 500m CPU, 200m free`, `needs 2Gi memory, 1.5Gi free`.
 */
export function describeShortage(field: ResourceField, need: number, free: number): string {
  const [needed, left] = formatPair(field, need, free);
  return `needs ${needed} ${UNITS[field].noun}, ${left} free`;
}

/** Formats a request that is larger than the node: `needs 100Gi memory, the node has 32Gi`. */
export function describeExcess(field: ResourceField, need: number, allocatable: number): string {
  const [needed, had] = formatPair(field, need, allocatable);
  return `needs ${needed} ${UNITS[field].noun}, the node has ${had}`;
}

/**
 * Rounds an amount of memory or storage down to a number that people like to read: to whole Gi from
 * 10Gi on, to whole Mi from 1Mi on. Returns other amounts unchanged.
 */
export function roundDown(field: ResourceField, amount: number): number {
  if (field !== 'memoryBytes' && field !== 'storageBytes') return amount;
  if (amount < MI) return amount;
  const unit = amount >= 10 * GI ? GI : MI;
  return Math.floor(amount / unit) * unit;
}

const MI = 1024 ** 2;
const GI = 1024 ** 3;

/** Formats two amounts in the smallest unit when both would be rounded to the same text. */
function formatPair(field: ResourceField, a: number, b: number): readonly [string, string] {
  const { format, smallest } = UNITS[field];
  const [first, second] = [format(a), format(b)];
  return first === second ? [`${a}${smallest}`, `${b}${smallest}`] : [first, second];
}

/** Texts for the amounts of one resource. */
interface Unit {
  readonly noun: string;
  /** Suffix of the smallest unit, in which amounts are given. */
  readonly smallest: string;
  readonly format: (amount: number) => string;
}

const formatBytes = (amount: number): string =>
  formatScaled(amount, 1024, ['', 'Ki', 'Mi', 'Gi', 'Ti']);

const UNITS: Readonly<Record<ResourceField, Unit>> = {
  cpuMillis: {
    noun: 'CPU',
    smallest: 'm',
    format: (amount) => (amount % 1000 === 0 ? String(amount / 1000) : `${amount}m`),
  },
  memoryBytes: { noun: 'memory', smallest: ' bytes', format: formatBytes },
  storageBytes: { noun: 'storage', smallest: ' bytes', format: formatBytes },
  bandwidthBps: {
    noun: 'bandwidth',
    smallest: ' bit/s',
    format: (amount) => formatScaled(amount, 1000, [' bit/s', ' kbit/s', ' Mbit/s', ' Gbit/s']),
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
  return `${Math.round(value * 10) / 10}${units[index] ?? ''}`;
}
