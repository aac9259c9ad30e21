import * as prom from 'prom-client';
import { assert, type Labels, type Meter, type MetricSpec } from '@cloudless/base';

/** Metrics of one process or, in tests, of one component. */
export interface Metrics extends Meter {
  /**
   * Returns all metrics in the Prometheus text format, version 0.0.4. A failing collector only
   * loses its own values.
   */
  expose(): Promise<string>;
  /** Lists all metrics created so far, without the process metrics. */
  listRegistered(): readonly RegisteredMetric[];
}

/** Description of a created metric. */
export interface RegisteredMetric extends MetricSpec {
  readonly kind: 'counter' | 'gauge' | 'histogram';
}

export interface MetricsOptions {
  /** Adds CPU, memory, file descriptors and garbage collection of this process; default false. */
  readonly process?: boolean;
  /**
   * Beginning of the names of the two metrics about the registry itself. Give each process its own
   * when their metrics are exposed together, because one page must not have a name twice. Default:
   * `cloudless_metrics`.
   */
  readonly selfPrefix?: string;
}

/**
 * Limit of label sets of one metric. A metric with more label sets has a label with unbounded
 * values, so that memory would grow without end.
 */
export const MAX_SERIES = 2_000;

/**
 * Creates metrics with a new registry. A second request with the same kind and name returns the
 * same metric; a request with the same name and another kind throws.
 */
export function createMetrics(options: MetricsOptions = {}): Metrics {
  const registry = new prom.Registry();
  const { selfPrefix = 'cloudless_metrics' } = options;
  if (options.process === true) prom.collectDefaultMetrics({ register: registry });
  const collectors = new Set<() => Promise<void>>();
  const metricsByKey = new Map<string, unknown>();
  const specs: RegisteredMetric[] = [];
  const droppedSamples = new prom.Counter({
    name: `${selfPrefix}_dropped_total`,
    help: 'Samples dropped because their metric has too many label sets.',
    labelNames: ['metric'],
    registers: [registry],
  });

  const collectFailures = new prom.Counter({
    name: `${selfPrefix}_collect_failures_total`,
    help: 'Times that a collector failed: some gauges show older values.',
    registers: [registry],
  });

  const getOrCreate = <Metric>(
    kind: RegisteredMetric['kind'],
    spec: MetricSpec,
    create: () => Metric,
  ): Metric => {
    const key = `${kind} ${spec.name}`;
    const found = metricsByKey.get(key) as Metric | undefined;
    if (found !== undefined) return found;
    const metric = create();
    metricsByKey.set(key, metric);
    specs.push({ kind, name: spec.name, help: spec.help, labels: spec.labels ?? [] });
    return metric;
  };
  const createSeriesLimit = (name: string) => {
    const labelSets = new Set<string>();
    const toKey = (labels: Labels): string =>
      JSON.stringify(Object.entries(labels).sort(([a], [b]) => (a < b ? -1 : 1)));
    const accept = (labels: Labels): boolean => {
      const key = toKey(labels);
      const isAccepted = labelSets.has(key) || labelSets.size < MAX_SERIES;
      if (isAccepted) labelSets.add(key);
      else droppedSamples.inc({ metric: name });
      return isAccepted;
    };
    return { fits: accept, forget: (labels: Labels) => void labelSets.delete(toKey(labels)) };
  };

  return {
    counter: (spec) =>
      getOrCreate('counter', spec, () => {
        assert(spec.name.endsWith('_total'), `counter ${spec.name} ends in _total`);
        const metric = new prom.Counter({ ...toConfig(spec), registers: [registry] });
        const { fits, forget } = createSeriesLimit(spec.name);
        return {
          add: (amount = 1, labels = {}) => (fits(labels) ? metric.inc(labels, amount) : undefined),
          remove: (labels) => {
            forget(labels);
            metric.remove(labels);
          },
        };
      }),
    gauge: (spec) =>
      getOrCreate('gauge', spec, () => {
        const metric = new prom.Gauge({ ...toConfig(spec), registers: [registry] });
        const { fits, forget } = createSeriesLimit(spec.name);
        return {
          set: (value, labels = {}) => (fits(labels) ? metric.set(labels, value) : undefined),
          remove: (labels) => {
            forget(labels);
            metric.remove(labels);
          },
        };
      }),
    histogram: (spec) =>
      getOrCreate('histogram', spec, () => {
        const metric = new prom.Histogram({
          ...toConfig(spec),
          buckets: [...spec.buckets],
          registers: [registry],
        });
        const { fits } = createSeriesLimit(spec.name);
        return {
          observe: (value, labels = {}) =>
            fits(labels) ? metric.observe(labels, value) : undefined,
        };
      }),
    onExpose: (collect) => {
      const run = async (): Promise<void> => collect();
      collectors.add(run);
      return () => void collectors.delete(run);
    },
    expose: async () => {
      const results = await Promise.allSettled([...collectors].map((collect) => collect()));
      for (const { status } of results) if (status === 'rejected') collectFailures.inc();
      return registry.metrics();
    },
    listRegistered: () => [...specs],
  };
}

function toConfig({ name, help, labels = [] }: MetricSpec) {
  return { name, help, labelNames: [...labels] };
}
