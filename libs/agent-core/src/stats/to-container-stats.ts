import { create } from '@bufbuild/protobuf';
import { durationFromMs, timestampFromMs } from '@bufbuild/protobuf/wkt';
import type { Clock } from '@cloudless/base';
import {
  ContainerStats_Source as Source,
  ContainerStatsSchema,
  ContainerUseSchema,
  type ContainerStats,
  type ContainerUse,
  type Resources,
} from '@cloudless/api';
import type {
  ContainerSample,
  CpuUse,
  IoUse,
  MemoryUse,
  NetworkUse,
  PressureUse,
  SampleResult,
} from '@cloudless/cgroup-stats';
import type { ContainerOwner } from '../container/container-labels.js';
import type { ContainerStatistics } from './stats-sampler.js';

/** Container and node that statistics belong to. */
export interface StatsSubject {
  readonly containerId: string;
  readonly owner: Pick<ContainerOwner, 'replicaId' | 'namespace' | 'workload'>;
  readonly nodeId: string;
}

const SOURCES = {
  v1: Source.CGROUP_V1,
  v2: Source.CGROUP_V2,
  hybrid: Source.CGROUP_HYBRID,
  processes: Source.PROCESSES,
} as const satisfies Readonly<Record<NonNullable<ContainerSample['origin']>, Source>>;

/** Converts a sample with all its values to the API message. */
export function toContainerStats(
  subject: StatsSubject,
  { sample, problems }: SampleResult,
  clock: Clock,
): ContainerStats {
  const { cpu, memory, io, network, pids, pressure } = sample;
  return create(ContainerStatsSchema, {
    ...toSubjectFields(subject),
    sampledAt: toSampleTime(sample, clock),
    source: sample.origin === undefined ? Source.SOURCE_UNKNOWN : SOURCES[sample.origin],
    ...(cpu === undefined ? {} : { cpu: toCpuStats(cpu) }),
    ...(memory === undefined ? {} : { memory: toMemoryStats(memory) }),
    ...(io === undefined ? {} : { io: toIoStats(io) }),
    ...(network === undefined ? {} : { network: toNetworkStats(network) }),
    ...(pids === undefined
      ? {}
      : {
          pids: { pidsCurrent: BigInt(pids.current), ...toWholeNumbers({ pidsLimit: pids.limit }) },
        }),
    ...(pressure === undefined ? {} : { pressure: toPressureStats(pressure) }),
    problems: problems.map(({ message }) => message),
  });
}

/**
 * Converts the newest rates of a container to the API message, together with the requests and
 * limits of its spec.
 */
export function toContainerUse(
  { owner, status, sample, rates }: ContainerStatistics,
  nodeId: string,
  resources: Resources | undefined,
  clock: Clock,
): ContainerUse {
  const { requests, limits } = resources ?? {};
  return create(ContainerUseSchema, {
    ...toSubjectFields({ containerId: status.containerId, owner, nodeId }),
    ...(sample === undefined ? {} : { sampledAt: toSampleTime(sample, clock) }),
    ...(rates === undefined ? {} : { interval: durationFromMs(Math.round(rates.intervalMs)) }),
    ...toWholeNumbers({
      cpuMillis: rates?.cpuMillis,
      memoryWorkingSetBytes: sample?.memory?.workingSetBytes ?? sample?.memory?.usageBytes,
      pidsCurrent: sample?.pids?.current,
      cpuLimitMillis: limits?.cpuMillis,
    }),
    ...withoutUndefined({
      throttledPeriodsRatio: rates?.throttledPeriodsRatio,
      ioReadBytesPerSecond: rates?.readBytesPerSecond,
      ioWriteBytesPerSecond: rates?.writeBytesPerSecond,
      networkReceivedBytesPerSecond: rates?.receivedBytesPerSecond,
      networkSentBytesPerSecond: rates?.sentBytesPerSecond,
      memoryLimitBytes: limits?.memoryBytes,
    }),
    cpuRequestMillis: BigInt(requests?.cpuMillis ?? 0),
    memoryRequestBytes: requests?.memoryBytes ?? 0n,
  });
}

const toSubjectFields = ({
  containerId,
  owner: { replicaId, namespace, workload },
  nodeId,
}: StatsSubject) => ({
  containerId,
  replicaId,
  namespace,
  workload,
  nodeId,
});

/** Converts the monotonic time of a sample to wall-clock time. */
const toSampleTime = ({ atMs }: ContainerSample, clock: Clock) =>
  timestampFromMs(Math.round(clock.wallTime() - (clock.now() - atMs)));

function toCpuStats({ usageNsec, userNsec, systemNsec, limitMillis, throttling }: CpuUse) {
  return {
    cpuUsageNanos: usageNsec,
    ...withoutUndefined({ cpuUserNanos: userNsec, cpuSystemNanos: systemNsec }),
    ...toWholeNumbers({ cpuLimitMillis: limitMillis }),
    ...(throttling === undefined
      ? {}
      : {
          periods: throttling.periods,
          throttledPeriods: throttling.throttledPeriods,
          throttledNanos: throttling.throttledNsec,
        }),
  };
}

const toMemoryStats = (memory: MemoryUse) => ({
  memoryUsageBytes: BigInt(memory.usageBytes),
  ...toWholeNumbers({
    memoryWorkingSetBytes: memory.workingSetBytes,
    memoryLimitBytes: memory.limitBytes,
    memoryPeakBytes: memory.peakBytes,
    memoryFileBytes: memory.fileBytes,
    memoryAnonBytes: memory.anonBytes,
    memorySwapBytes: memory.swapBytes,
    memorySwapLimitBytes: memory.swapLimitBytes,
  }),
});

const toIoStats = ({ readBytes, writeBytes, readOperations, writeOperations }: IoUse) => ({
  ioReadBytes: readBytes,
  ioWriteBytes: writeBytes,
  ...withoutUndefined({ ioReadOperations: readOperations, ioWriteOperations: writeOperations }),
});

const toNetworkStats = (network: NetworkUse) => ({
  networkReceivedBytes: network.receivedBytes,
  networkReceivedPackets: network.receivedPackets,
  networkReceivedErrors: network.receivedErrors,
  networkReceivedDropped: network.receivedDropped,
  networkSentBytes: network.sentBytes,
  networkSentPackets: network.sentPackets,
  networkSentErrors: network.sentErrors,
  networkSentDropped: network.sentDropped,
});

function toPressureStats(pressure: PressureUse) {
  const entries = (['cpu', 'memory', 'io'] as const).flatMap((resource) => {
    const { some, full } = pressure[resource] ?? {};
    const stalls = {
      ...(some === undefined ? {} : { some: toStall(some) }),
      ...(full === undefined ? {} : { full: toStall(full) }),
    };
    return pressure[resource] === undefined ? [] : [[resource, stalls] as const];
  });
  return Object.fromEntries(entries);
}

const toStall = ({
  totalNsec,
  ...averages
}: NonNullable<NonNullable<PressureUse['cpu']>['some']>) => ({
  ...averages,
  totalNanos: totalNsec,
});

/** Rounds the defined fields to whole numbers and leaves out the others. */
function toWholeNumbers<Key extends string>(
  fields: Readonly<Record<Key, number | undefined>>,
): Partial<Record<Key, bigint>> {
  const entries = Object.entries<number | undefined>(fields);
  return Object.fromEntries(
    entries.flatMap(([key, value]) =>
      value === undefined ? [] : [[key, BigInt(Math.round(value))]],
    ),
  ) as Partial<Record<Key, bigint>>;
}

/** Leaves out undefined fields. */
function withoutUndefined<Fields extends object>(
  fields: Fields,
): { [Key in keyof Fields]?: Exclude<Fields[Key], undefined> } {
  const entries = Object.entries(fields).filter(([, value]) => value !== undefined);
  return Object.fromEntries(entries) as { [Key in keyof Fields]?: Exclude<Fields[Key], undefined> };
}
