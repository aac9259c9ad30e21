import type { Counter, Gauge, Labels, Meter } from '@cloudless/base';
import type { ContainerSample, Pressure } from '@cloudless/cgroup-stats';
import type { ContainerFigures, StatsObserver } from './stats-sampler.js';

/**
 * One series of a container: a part of the name, what it says, and its value in the unit that the
 * name ends in.
 */
interface Series {
  readonly name: string;
  readonly help: string;
  readonly labels?: Labels;
  readonly of: (sample: ContainerSample) => number | bigint | undefined;
}

const seconds = (nsec: bigint | undefined): number | undefined =>
  nsec === undefined ? undefined : Number(nsec) / 1e9;

const COUNTERS: readonly Series[] = [
  { name: 'cpu_seconds_total', help: 'CPU time used.', of: ({ cpu }) => seconds(cpu?.usageNsec) },
  {
    name: 'cpu_user_seconds_total',
    help: 'CPU time used in user mode.',
    of: ({ cpu }) => seconds(cpu?.userNsec),
  },
  {
    name: 'cpu_system_seconds_total',
    help: 'CPU time used in the kernel.',
    of: ({ cpu }) => seconds(cpu?.systemNsec),
  },
  {
    name: 'cpu_periods_total',
    help: 'Periods of its CPU limit in which the container wanted to run.',
    of: ({ cpu }) => cpu?.throttling?.periods,
  },
  {
    name: 'cpu_throttled_periods_total',
    help: 'Periods in which its CPU limit made the container wait.',
    of: ({ cpu }) => cpu?.throttling?.throttledPeriods,
  },
  {
    name: 'cpu_throttled_seconds_total',
    help: 'Time for which its CPU limit made the container wait; each CPU counts.',
    of: ({ cpu }) => seconds(cpu?.throttling?.throttledNsec),
  },
  {
    name: 'io_read_bytes_total',
    help: 'Bytes read from block devices.',
    of: ({ io }) => io?.readBytes,
  },
  {
    name: 'io_written_bytes_total',
    help: 'Bytes written to block devices.',
    of: ({ io }) => io?.writeBytes,
  },
  { name: 'io_reads_total', help: 'Reads from block devices.', of: ({ io }) => io?.readOperations },
  {
    name: 'io_writes_total',
    help: 'Writes to block devices.',
    of: ({ io }) => io?.writeOperations,
  },
  {
    name: 'network_received_bytes_total',
    help: "Bytes received in the container's own network.",
    of: ({ network }) => network?.receivedBytes,
  },
  {
    name: 'network_received_packets_total',
    help: "Packets received in the container's own network.",
    of: ({ network }) => network?.receivedPackets,
  },
  {
    name: 'network_received_errors_total',
    help: "Packets received with errors in the container's own network.",
    of: ({ network }) => network?.receivedErrors,
  },
  {
    name: 'network_received_dropped_total',
    help: "Packets dropped on receipt in the container's own network.",
    of: ({ network }) => network?.receivedDropped,
  },
  {
    name: 'network_sent_bytes_total',
    help: "Bytes sent in the container's own network.",
    of: ({ network }) => network?.sentBytes,
  },
  {
    name: 'network_sent_packets_total',
    help: "Packets sent in the container's own network.",
    of: ({ network }) => network?.sentPackets,
  },
  {
    name: 'network_sent_errors_total',
    help: "Packets not sent for errors in the container's own network.",
    of: ({ network }) => network?.sentErrors,
  },
  {
    name: 'network_sent_dropped_total',
    help: "Packets dropped on sending in the container's own network.",
    of: ({ network }) => network?.sentDropped,
  },
  ...(['cpu', 'memory', 'io'] as const).flatMap((resource): readonly Series[] => [
    {
      name: 'pressure_waiting_seconds_total',
      help: 'Time for which at least one task waited for a resource: cpu, memory or io (PSI some).',
      labels: { resource },
      of: ({ pressure }) => stalled(pressure?.[resource], 'some'),
    },
    {
      name: 'pressure_stalled_seconds_total',
      help: 'Time for which all tasks waited at once for a resource: cpu, memory or io (PSI full).',
      labels: { resource },
      of: ({ pressure }) => stalled(pressure?.[resource], 'full'),
    },
  ]),
];

const GAUGES: readonly Series[] = [
  {
    name: 'cpu_limit_cores',
    help: 'CPU limit; without a limit there is no series.',
    of: ({ cpu }) => (cpu?.limitMillis === undefined ? undefined : cpu.limitMillis / 1_000),
  },
  {
    name: 'memory_usage_bytes',
    help: 'Memory in use, with page cache.',
    of: ({ memory }) => memory?.usageBytes,
  },
  {
    name: 'memory_working_set_bytes',
    help: 'Memory in use without what the kernel drops first.',
    of: ({ memory }) => memory?.workingSetBytes,
  },
  {
    name: 'memory_limit_bytes',
    help: 'Memory limit; without a limit there is no series.',
    of: ({ memory }) => memory?.limitBytes,
  },
  {
    name: 'memory_peak_bytes',
    help: 'The most memory that has been in use.',
    of: ({ memory }) => memory?.peakBytes,
  },
  {
    name: 'memory_file_bytes',
    help: 'Page cache and files in memory.',
    of: ({ memory }) => memory?.fileBytes,
  },
  {
    name: 'memory_anon_bytes',
    help: 'Memory without a file behind it.',
    of: ({ memory }) => memory?.anonBytes,
  },
  {
    name: 'memory_swap_bytes',
    help: 'Memory that has been swapped out.',
    of: ({ memory }) => memory?.swapBytes,
  },
  { name: 'pids', help: 'Processes and threads.', of: ({ pids }) => pids?.current },
  {
    name: 'pids_limit',
    help: 'Limit of processes and threads; without a limit there is no series.',
    of: ({ pids }) => pids?.limit,
  },
];

const stalled = (pressure: Pressure | undefined, kind: keyof Pressure): number | undefined =>
  seconds(pressure?.[kind]?.totalNsec);

/**
 * Shows what each running container uses, as `cloudless_container_…`. Its series go with the
 * container.
 */
export function meterContainers(meter: Meter): StatsObserver {
  const spec = ({ name, help, labels = {} }: Series) => ({
    name: `cloudless_container_${name}`,
    help,
    labels: [...LABELS, ...Object.keys(labels)],
  });
  const counters = COUNTERS.map((series) => ({ series, metric: meter.counter(spec(series)) }));
  const gauges = GAUGES.map((series) => ({ series, metric: meter.gauge(spec(series)) }));
  /** What each counter of a container was when it was known last. */
  const counted = new Map<string, Map<Series, number>>();
  return {
    sampled(container) {
      const { sample, status } = container;
      const before = counted.get(status.containerId) ?? new Map<Series, number>();
      counted.set(status.containerId, before);
      for (const { series, metric } of counters)
        addGrowth(metric, series, before, sample, labelsOf(container, series));
      for (const { series, metric } of gauges)
        show(metric, series.of(sample), labelsOf(container, series));
    },
    gone(container) {
      counted.delete(container.status.containerId);
      for (const { series, metric } of [...counters, ...gauges])
        metric.remove(labelsOf(container, series));
    },
  };
}

const LABELS = ['namespace', 'workload', 'replica', 'container'];

function labelsOf({ owner, status }: ContainerFigures, { labels }: Series): Labels {
  const { namespace, workload, replicaId: replica } = owner;
  return { namespace, workload, replica, container: status.containerId, ...labels };
}

/** At first all that it counts since the container began; one that has gone back adds nothing. */
function addGrowth(
  metric: Counter,
  series: Series,
  before: Map<Series, number>,
  after: ContainerSample,
  labels: Labels,
): void {
  const value = series.of(after);
  if (value === undefined) return;
  metric.add(Math.max(0, Number(value) - (before.get(series) ?? 0)), labels);
  before.set(series, Number(value));
}

function show(metric: Gauge, value: number | bigint | undefined, labels: Labels): void {
  if (value === undefined) metric.remove(labels);
  else metric.set(Number(value), labels);
}
