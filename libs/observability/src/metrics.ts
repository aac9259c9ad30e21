import { assert } from '@cloudless/base';
import * as prom from 'prom-client';

/** Label values of one sample, by label name. */
export type Labels = Readonly<Record<string, string>>;

/** What a metric is called and says. */
export interface MetricSpec {
  /** Prometheus name, unit last: `cloudless_commit_duration_seconds`; a counter ends in `_total`. */
  readonly name: string;
  /** One sentence for who reads the graph. */
  readonly help: string;
  /** Names of its labels; their values must come from a small set, never from users. */
  readonly labels?: readonly string[];
}

/** Only grows. */
export interface Counter {
  /** @param amount - 0 or more; default 1. */
  add(amount?: number, labels?: Labels): void;
}

/** A value that goes up and down. */
export interface Gauge {
  set(value: number, labels?: Labels): void;
  /** Forgets one label set: what it spoke of is gone. */
  remove(labels: Labels): void;
}

/** Counts values by size. */
export interface Histogram {
  observe(value: number, labels?: Labels): void;
}

/** Metrics of one process or, in tests, of one part of it. Asking twice for the same name gives the same metric. */
export interface Metrics {
  counter(spec: MetricSpec): Counter;
  gauge(spec: MetricSpec): Gauge;
  /** @param spec - `buckets`: upper bounds, ascending. */
  histogram(spec: MetricSpec & { readonly buckets: readonly number[] }): Histogram;
  /** Calls `collect` before each {@link expose}, to set gauges that are only worth reading then. */
  onExpose(collect: () => void): void;
  /** Everything in the Prometheus text format, version 0.0.4. */
  expose(): Promise<string>;
}

/** What {@link createMetrics} needs. */
export interface MetricsOptions {
  /** Also CPU, memory, file descriptors and garbage collection of this process; default false. */
  readonly process?: boolean;
}

/** Label sets that one metric keeps. More mean that a label takes its values from users: the memory of it would grow without end. */
export const MAX_SERIES = 2_000;

/** Creates metrics with a registry of their own. */
export function createMetrics(options: MetricsOptions = {}): Metrics {
  const registry = new prom.Registry();
  if (options.process === true) prom.collectDefaultMetrics({ register: registry });
  const collectors: (() => void)[] = [];
  const known = new Map<string, unknown>();
  const dropped = new prom.Counter({
    name: 'cloudless_metrics_dropped_total',
    help: 'Samples dropped because their metric has too many label sets.',
    labelNames: ['metric'],
    registers: [registry],
  });

  const once = <Metric>(kind: string, name: string, create: () => Metric): Metric => {
    const key = `${kind} ${name}`;
    const found = known.get(key) as Metric | undefined;
    if (found !== undefined) return found;
    const metric = create();
    known.set(key, metric);
    return metric;
  };
  const boundedSeries = (name: string) => {
    const seen = new Set<string>();
    const keyOf = (labels: Labels): string => JSON.stringify(Object.entries(labels).sort(([a], [b]) => (a < b ? -1 : 1)));
    const fits = (labels: Labels): boolean => {
      const key = keyOf(labels);
      const room = seen.has(key) || seen.size < MAX_SERIES;
      if (room) seen.add(key);
      else dropped.inc({ metric: name });
      return room;
    };
    return { fits, forget: (labels: Labels) => void seen.delete(keyOf(labels)) };
  };

  return {
    counter: (spec) =>
      once('counter', spec.name, () => {
        assert(spec.name.endsWith('_total'), `counter ${spec.name} ends in _total`);
        const metric = new prom.Counter({ ...toConfig(spec), registers: [registry] });
        const { fits } = boundedSeries(spec.name);
        return { add: (amount = 1, labels = {}) => (fits(labels) ? metric.inc(labels, amount) : undefined) };
      }),
    gauge: (spec) =>
      once('gauge', spec.name, () => {
        const metric = new prom.Gauge({ ...toConfig(spec), registers: [registry] });
        const { fits, forget } = boundedSeries(spec.name);
        return {
          set: (value, labels = {}) => (fits(labels) ? metric.set(labels, value) : undefined),
          remove: (labels) => {
            forget(labels);
            metric.remove(labels);
          },
        };
      }),
    histogram: (spec) =>
      once('histogram', spec.name, () => {
        const metric = new prom.Histogram({ ...toConfig(spec), buckets: [...spec.buckets], registers: [registry] });
        const { fits } = boundedSeries(spec.name);
        return { observe: (value, labels = {}) => (fits(labels) ? metric.observe(labels, value) : undefined) };
      }),
    onExpose: (collect) => void collectors.push(collect),
    expose: () => {
      for (const collect of collectors) collect();
      return registry.metrics();
    },
  };
}

function toConfig({ name, help, labels = [] }: MetricSpec) {
  return { name, help, labelNames: [...labels] };
}
