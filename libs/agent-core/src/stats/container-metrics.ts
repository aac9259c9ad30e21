import type { Counter, Gauge, Labels, Meter } from '@cloudless/base';
import type { ContainerSample, Pressure } from '@cloudless/cgroup-stats';
import type { ContainerStatistics, StatsObserver } from './stats-sampler.js';

/** One metric of a container. */
interface Series {
  /** Name after `cloudless_container_`; includes the unit of the value, if it has one. */
  readonly name: string;
  readonly help: string;
  readonly labels?: Labels;
  /** Reads the value; undefined when the sample does not have the value. */
  readonly read: (sample: ContainerSample) => number | bigint | undefined;
}

const toSeconds = (nsec: bigint | undefined): number | undefined =>
  nsec === undefined ? undefined : Number(nsec) / 1e9;

const COUNTERS: readonly Series[] = [
  {
    name: 'cpu_seconds_total',
    help: 'CPU time used.',
    read: ({ cpu }) => toSeconds(cpu?.usageNsec),
  },
  {
    name: 'cpu_user_seconds_total',
    help: 'CPU time used in user mode.',
    read: ({ cpu }) => toSeconds(cpu?.userNsec),
  },
  {
    name: 'cpu_system_seconds_total',
    help: 'CPU time used in the kernel.',
    read: ({ cpu }) => toSeconds(cpu?.systemNsec),
  },
  {
    name: 'cpu_periods_total',
    help: 'Periods of the CPU limit in which the container was runnable.',
    read: ({ cpu }) => cpu?.throttling?.periods,
  },
  {
    name: 'cpu_throttled_periods_total',
    help: 'Periods in which the CPU limit throttled the container.',
    read: ({ cpu }) => cpu?.throttling?.throttledPeriods,
  },
  {
    name: 'cpu_throttled_seconds_total',
    help: 'Time for which the CPU limit throttled the container, summed over CPUs.',
    read: ({ cpu }) => toSeconds(cpu?.throttling?.throttledNsec),
  },
  {
    name: 'io_read_bytes_total',
    help: 'Bytes read from block devices.',
    read: ({ io }) => io?.readBytes,
  },
  {
    name: 'io_written_bytes_total',
    help: 'Bytes written to block devices.',
    read: ({ io }) => io?.writeBytes,
  },
  {
    name: 'io_reads_total',
    help: 'Reads from block devices.',
    read: ({ io }) => io?.readOperations,
  },
  {
    name: 'io_writes_total',
    help: 'Writes to block devices.',
    read: ({ io }) => io?.writeOperations,
  },
  {
    name: 'network_received_bytes_total',
    help: 'Bytes received in the network namespace of the container.',
    read: ({ network }) => network?.receivedBytes,
  },
  {
    name: 'network_received_packets_total',
    help: 'Packets received in the network namespace of the container.',
    read: ({ network }) => network?.receivedPackets,
  },
  {
    name: 'network_received_errors_total',
    help: 'Packets received with errors in the network namespace of the container.',
    read: ({ network }) => network?.receivedErrors,
  },
  {
    name: 'network_received_dropped_total',
    help: 'Received packets dropped in the network namespace of the container.',
    read: ({ network }) => network?.receivedDropped,
  },
  {
    name: 'network_sent_bytes_total',
    help: 'Bytes sent in the network namespace of the container.',
    read: ({ network }) => network?.sentBytes,
  },
  {
    name: 'network_sent_packets_total',
    help: 'Packets sent in the network namespace of the container.',
    read: ({ network }) => network?.sentPackets,
  },
  {
    name: 'network_sent_errors_total',
    help: 'Packets not sent because of errors in the network namespace of the container.',
    read: ({ network }) => network?.sentErrors,
  },
  {
    name: 'network_sent_dropped_total',
    help: 'Sent packets dropped in the network namespace of the container.',
    read: ({ network }) => network?.sentDropped,
  },
  ...(['cpu', 'memory', 'io'] as const).flatMap((resource): readonly Series[] => [
    {
      name: 'pressure_waiting_seconds_total',
      help: 'Time for which at least one task waited for a resource: cpu, memory or io (PSI some).',
      labels: { resource },
      read: ({ pressure }) => toStalledSeconds(pressure?.[resource], 'some'),
    },
    {
      name: 'pressure_stalled_seconds_total',
      help: 'Time for which all tasks waited at once for a resource: cpu, memory or io (PSI full).',
      labels: { resource },
      read: ({ pressure }) => toStalledSeconds(pressure?.[resource], 'full'),
    },
  ]),
];

const GAUGES: readonly Series[] = [
  {
    name: 'cpu_limit_cores',
    help: 'CPU limit; no series without a limit.',
    read: ({ cpu }) => (cpu?.limitMillis === undefined ? undefined : cpu.limitMillis / 1_000),
  },
  {
    name: 'memory_usage_bytes',
    help: 'Memory in use, including page cache.',
    read: ({ memory }) => memory?.usageBytes,
  },
  {
    name: 'memory_working_set_bytes',
    help: 'Memory in use without page cache that the kernel can drop at once.',
    read: ({ memory }) => memory?.workingSetBytes,
  },
  {
    name: 'memory_limit_bytes',
    help: 'Memory limit; no series without a limit.',
    read: ({ memory }) => memory?.limitBytes,
  },
  {
    name: 'memory_peak_bytes',
    help: 'Highest memory use.',
    read: ({ memory }) => memory?.peakBytes,
  },
  {
    name: 'memory_file_bytes',
    help: 'Page cache and files in memory.',
    read: ({ memory }) => memory?.fileBytes,
  },
  {
    name: 'memory_anon_bytes',
    help: 'Anonymous memory.',
    read: ({ memory }) => memory?.anonBytes,
  },
  {
    name: 'memory_swap_bytes',
    help: 'Swapped-out memory.',
    read: ({ memory }) => memory?.swapBytes,
  },
  { name: 'pids', help: 'Processes and threads.', read: ({ pids }) => pids?.current },
  {
    name: 'pids_limit',
    help: 'Limit of processes and threads; no series without a limit.',
    read: ({ pids }) => pids?.limit,
  },
];

const toStalledSeconds = (
  pressure: Pressure | undefined,
  kind: keyof Pressure,
): number | undefined => toSeconds(pressure?.[kind]?.totalNsec);

/**
 * Exposes the resource usage of each running container as `cloudless_container_…`. The series of a
 * container are removed when the container exits.
 */
export function createContainerMetrics(meter: Meter): StatsObserver {
  const toMetricSpec = ({ name, help, labels = {} }: Series) => ({
    name: `cloudless_container_${name}`,
    help,
    labels: [...LABELS, ...Object.keys(labels)],
  });
  const counters = COUNTERS.map((series) => ({
    series,
    metric: meter.counter(toMetricSpec(series)),
  }));
  const gauges = GAUGES.map((series) => ({ series, metric: meter.gauge(toMetricSpec(series)) }));
  /** Value of each counter in the previous sample, by container id. */
  const lastCounts = new Map<string, Map<Series, number>>();
  return {
    onSampled(container) {
      const { sample, status } = container;
      const before = lastCounts.get(status.containerId) ?? new Map<Series, number>();
      lastCounts.set(status.containerId, before);
      for (const { series, metric } of counters)
        addGrowth(metric, series, before, sample, toLabels(container, series));
      for (const { series, metric } of gauges)
        setGauge(metric, series.read(sample), toLabels(container, series));
    },
    onGone(container) {
      lastCounts.delete(container.status.containerId);
      for (const { series, metric } of [...counters, ...gauges])
        metric.remove(toLabels(container, series));
    },
  };
}

const LABELS = ['namespace', 'workload', 'replica', 'container'];

function toLabels({ owner, status }: ContainerStatistics, { labels }: Series): Labels {
  const { namespace, workload, replicaId: replica } = owner;
  return { namespace, workload, replica, container: status.containerId, ...labels };
}

/**
 * Adds the growth of a counter. The first value counts from the start of the container; a value
 * that has decreased adds nothing.
 */
function addGrowth(
  metric: Counter,
  series: Series,
  before: Map<Series, number>,
  after: ContainerSample,
  labels: Labels,
): void {
  const value = series.read(after);
  if (value === undefined) return;
  metric.add(Math.max(0, Number(value) - (before.get(series) ?? 0)), labels);
  before.set(series, Number(value));
}

function setGauge(metric: Gauge, value: number | bigint | undefined, labels: Labels): void {
  if (value === undefined) metric.remove(labels);
  else metric.set(Number(value), labels);
}
