import * as prom from 'prom-client';
import {
  assert,
  type Counter,
  type Histogram,
  type Labels,
  type Meter,
  type MetricSpec,
} from '@cloudless/base';
import { SeriesTable } from './series.js';

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

/** Which metrics of its own a registry has. */
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

const NO_LABELS: Labels = {};

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
  const createSeriesLimit = ({ name, labels: names = [] }: MetricSpec): SeriesLimit => {
    const labelSets = new SeriesTable<true>(names);
    const fits = (labels: Labels): boolean => {
      if (labelSets.get(labels) === true) return true;
      if (labelSets.size < MAX_SERIES) labelSets.set(labels, true);
      else droppedSamples.inc({ metric: name });
      return labelSets.get(labels) === true;
    };
    return { fits, forget: (labels) => labelSets.delete(labels) };
  };

  return {
    counter: (spec) =>
      getOrCreate('counter', spec, () => {
        assert(spec.name.endsWith('_total'), `counter ${spec.name} ends in _total`);
        return createCounter(spec, registry, createSeriesLimit(spec));
      }),
    gauge: (spec) =>
      getOrCreate('gauge', spec, () => {
        const metric = new prom.Gauge({ ...toConfig(spec), registers: [registry] });
        const { fits, forget } = createSeriesLimit(spec);
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
        return createHistogram(spec, metric, createSeriesLimit(spec));
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

/** Amount by which a series of a counter has grown since the metrics were last exposed. */
interface PendingAmount {
  readonly labels: Labels;
  amount: number;
}

/** Creates a counter that adds to each series itself, and to prom-client when exposed. */
function createCounter(spec: MetricSpec, registry: prom.Registry, limit: SeriesLimit): Counter {
  const pending = new SeriesTable<PendingAmount>(spec.labels ?? []);
  const metric = new prom.Counter({
    ...toConfig(spec),
    registers: [registry],
    collect: () => {
      for (const series of pending.values()) {
        if (series.amount > 0) metric.inc(series.labels, series.amount);
        series.amount = 0;
      }
    },
  });
  return {
    add: (amount = 1, labels = NO_LABELS) => {
      const series = pending.get(labels);
      if (series !== undefined && amount >= 0 && amount < Infinity) {
        series.amount += amount;
        return;
      }
      if (!limit.fits(labels)) return;
      metric.inc(labels, amount); // throws for amounts and labels that are not allowed
      if (series === undefined) pending.set(labels, { labels: { ...labels }, amount: 0 });
    },
    remove: (labels) => {
      limit.forget(labels);
      pending.delete(labels);
      metric.remove(labels);
    },
  };
}

/**
 * Creates a histogram that asks prom-client once for the observer of each series: prom-client
 * creates one for each observation otherwise.
 */
function createHistogram(
  { labels: names = [] }: MetricSpec,
  metric: prom.Histogram,
  limit: SeriesLimit,
): Histogram {
  const observers = new SeriesTable<prom.Histogram.Internal<string>>(names);
  return {
    observe: (value, labels = NO_LABELS) => {
      const known = observers.get(labels);
      if (known !== undefined) return known.observe(value);
      if (!limit.fits(labels)) return;
      const observer = metric.labels({ ...labels }); // throws for labels that are not allowed
      observer.observe(value);
      observers.set(labels, observer);
    },
  };
}

/** Bounds the label sets of one metric. */
interface SeriesLimit {
  /** Counts a new label set. Returns false for a new label set beyond the limit. */
  fits(labels: Labels): boolean;
  forget(labels: Labels): void;
}

function toConfig({ name, help, labels = [] }: MetricSpec) {
  return { name, help, labelNames: [...labels] };
}
