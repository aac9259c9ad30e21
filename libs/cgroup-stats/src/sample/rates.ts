import type { ContainerSample } from './sample.js';

/** A reading of a CPU counter. */
export interface CpuSample {
  readonly usageNsec: bigint;
  /** Time of the reading, monotonic milliseconds. */
  readonly atMs: number;
}

/**
 * Returns the average use between two readings in thousandths of a CPU, rounded.
 * @returns Undefined when no time has passed or the counter was reset.
 */
export function cpuMillisBetween(earlier: CpuSample, later: CpuSample): number | undefined {
  const elapsedMs = later.atMs - earlier.atMs;
  const usedNsec = later.usageNsec - earlier.usageNsec;
  if (!(elapsedMs > 0) || usedNsec < 0n) return undefined;
  return Math.round(Number(usedNsec) / 1_000 / elapsedMs);
}

/** Averages between two samples. A rate that cannot be computed is absent. */
export interface ContainerRates {
  /** Thousandths of a CPU, rounded. */
  readonly cpuMillis?: number;
  readonly cpuUserMillis?: number;
  readonly cpuSystemMillis?: number;
  /**
   * Share of the periods in which the group was throttled, 0 to 1. Absent when the group ran in no
   * period.
   */
  readonly throttledPeriodsRatio?: number;
  readonly readBytesPerSecond?: number;
  readonly writeBytesPerSecond?: number;
  readonly readOperationsPerSecond?: number;
  readonly writeOperationsPerSecond?: number;
  readonly receivedBytesPerSecond?: number;
  readonly receivedPacketsPerSecond?: number;
  readonly sentBytesPerSecond?: number;
  readonly sentPacketsPerSecond?: number;
}

/**
 * Computes the average resource use of a container between two samples.
 * @returns No rates when the samples have different sources, when the time of `after` is not later,
 *   or when the CPU counter has decreased because the container was started again. When another
 *   counter has decreased, because a device or an interface was removed, only the rates of its part
 *   are absent.
 */
export function ratesBetween(before: ContainerSample, after: ContainerSample): ContainerRates {
  const elapsedMs = after.atMs - before.atMs;
  if (before.source !== after.source || !(elapsedMs > 0)) return {};
  const cpu = computeDeltas(before.cpu, after.cpu, ['usageNsec', 'userNsec', 'systemNsec']);
  if (cpu === 'decreased') return {};
  const periods = computeDeltas(before.cpu?.throttling, after.cpu?.throttling, [
    'periods',
    'throttledPeriods',
  ]);
  const io = computeDeltas(before.io, after.io, [
    'readBytes',
    'writeBytes',
    'readOperations',
    'writeOperations',
  ]);
  const network = computeDeltas(before.network, after.network, [
    'receivedBytes',
    'receivedPackets',
    'sentBytes',
    'sentPackets',
  ]);
  const millis = (nsec: bigint): number => Math.round(Number(nsec) / 1_000 / elapsedMs);
  const perSecond = (count: bigint): number => (Number(count) * 1_000) / elapsedMs;
  return {
    ...toRates(
      cpu,
      { usageNsec: 'cpuMillis', userNsec: 'cpuUserMillis', systemNsec: 'cpuSystemMillis' },
      millis,
    ),
    ...computeThrottledRatio(periods),
    ...toRates(io, PER_SECOND, perSecond),
    ...toRates(network, PER_SECOND, perSecond),
  };
}

/** Rate of each counter of block I/O and network. */
const PER_SECOND = {
  readBytes: 'readBytesPerSecond',
  writeBytes: 'writeBytesPerSecond',
  readOperations: 'readOperationsPerSecond',
  writeOperations: 'writeOperationsPerSecond',
  receivedBytes: 'receivedBytesPerSecond',
  receivedPackets: 'receivedPacketsPerSecond',
  sentBytes: 'sentBytesPerSecond',
  sentPackets: 'sentPacketsPerSecond',
} as const satisfies Readonly<Record<string, keyof ContainerRates>>;

/** Growth of the counters of a part by key, or the fact that one of them has decreased. */
type Deltas<Key extends string> = Readonly<Partial<Record<Key, bigint>>> | 'decreased';

/**
 * Returns the growth of the counters of a part. Counters that one of the samples lacks are absent.
 */
function computeDeltas<Key extends string>(
  before: { readonly [K in Key]?: bigint } | undefined,
  after: { readonly [K in Key]?: bigint } | undefined,
  keys: readonly Key[],
): Deltas<Key> {
  const deltas: Partial<Record<Key, bigint>> = {};
  for (const key of keys) {
    const [earlier, later] = [before?.[key], after?.[key]];
    if (earlier === undefined || later === undefined) continue;
    if (later < earlier) return 'decreased';
    deltas[key] = later - earlier;
  }
  return deltas;
}

/** Converts the growth of counters to rates, under the names of the rates. */
function toRates<Key extends string>(
  deltas: Deltas<Key>,
  names: Readonly<Record<Key, keyof ContainerRates>>,
  toRate: (delta: bigint) => number,
): ContainerRates {
  if (deltas === 'decreased') return {};
  const rates: Partial<Record<keyof ContainerRates, number>> = {};
  for (const key of Object.keys(deltas) as Key[]) {
    const delta = deltas[key];
    if (delta !== undefined) rates[names[key]] = toRate(delta);
  }
  return rates;
}

function computeThrottledRatio(deltas: Deltas<'periods' | 'throttledPeriods'>): ContainerRates {
  if (
    deltas === 'decreased' ||
    deltas.periods === undefined ||
    deltas.throttledPeriods === undefined
  )
    return {};
  if (deltas.periods === 0n) return {};
  return {
    throttledPeriodsRatio: Math.min(1, Number(deltas.throttledPeriods) / Number(deltas.periods)),
  };
}
