import type { ContainerSample } from './sample.js';

/** A reading of a CPU counter. */
export interface CpuSample {
  readonly usageNsec: bigint;
  /** Time of the reading, monotonic milliseconds. */
  readonly atMs: number;
}

/**
 * Average use between two readings in thousandths of a CPU, rounded.
 * @returns Undefined when no time has passed or the counter was reset.
 */
export function cpuMillisBetween(earlier: CpuSample, later: CpuSample): number | undefined {
  const elapsedMs = later.atMs - earlier.atMs;
  const usedNsec = later.usageNsec - earlier.usageNsec;
  if (!(elapsedMs > 0) || usedNsec < 0n) return undefined;
  return Math.round(Number(usedNsec) / 1_000 / elapsedMs);
}

/** Averages between two samples. Unknown rates are absent. */
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
 * Returns the resource use of a container between two samples.
 * @returns No rates when the samples have different sources, no or negative time has passed, or the
 *   CPU counter was reset because the container was started again. When another counter has
 *   decreased (a device or an interface was removed), only the rates of its part are absent.
 */
export function ratesBetween(before: ContainerSample, after: ContainerSample): ContainerRates {
  const elapsedMs = after.atMs - before.atMs;
  if (before.source !== after.source || !(elapsedMs > 0)) return {};
  const cpu = computeDeltas(before.cpu, after.cpu, ['usageNsec', 'userNsec', 'systemNsec']);
  if (cpu === 'wentBack') return {};
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
    ...renameKeys(
      cpu,
      { usageNsec: 'cpuMillis', userNsec: 'cpuUserMillis', systemNsec: 'cpuSystemMillis' },
      millis,
    ),
    ...computeThrottledRatio(periods),
    ...renameKeys(io, PER_SECOND, perSecond),
    ...renameKeys(network, PER_SECOND, perSecond),
  };
}

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

type Deltas<Key extends string> = Readonly<Partial<Record<Key, bigint>>> | 'wentBack';

/**
 * Returns the growth of the counters of a part. Counters that one of the samples lacks are absent.
 */
function computeDeltas<Key extends string>(
  before: { readonly [K in Key]?: bigint } | undefined,
  after: { readonly [K in Key]?: bigint } | undefined,
  renames: readonly Key[],
): Deltas<Key> {
  const grown: Partial<Record<Key, bigint>> = {};
  for (const key of renames) {
    const [from, to] = [before?.[key], after?.[key]];
    if (from === undefined || to === undefined) continue;
    if (to < from) return 'wentBack';
    grown[key] = to - from;
  }
  return grown;
}

function renameKeys<Key extends string>(
  grown: Deltas<Key>,
  names: Readonly<Record<Key, keyof ContainerRates>>,
  toRate: (delta: bigint) => number,
): ContainerRates {
  if (grown === 'wentBack') return {};
  const rates: Partial<Record<keyof ContainerRates, number>> = {};
  for (const key of Object.keys(grown) as Key[]) {
    const delta = grown[key];
    if (delta !== undefined) rates[names[key]] = toRate(delta);
  }
  return rates;
}

function computeThrottledRatio(grown: Deltas<'periods' | 'throttledPeriods'>): ContainerRates {
  if (grown === 'wentBack' || grown.periods === undefined || grown.throttledPeriods === undefined)
    return {};
  if (grown.periods === 0n) return {};
  return {
    throttledPeriodsRatio: Math.min(1, Number(grown.throttledPeriods) / Number(grown.periods)),
  };
}
