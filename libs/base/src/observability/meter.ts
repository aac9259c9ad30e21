/** Label values of one time series, by label name. */
export type Labels = Readonly<Record<string, string>>;

/** Name and description of a metric. */
export interface MetricSpec {
  /**
   * Prometheus name with the base unit last: `cloudless_state_commit_duration_seconds`. The name of
   * a counter ends in `_total`.
   */
  readonly name: string;
  /** One sentence that explains the metric to people who read a graph. */
  readonly help: string;
  /** Label names. Label values must come from a small set, never from users. */
  readonly labels?: readonly string[];
}

export interface HistogramSpec extends MetricSpec {
  /** Upper bounds, ascending. */
  readonly buckets: readonly number[];
}

/** A value that only grows. */
export interface Counter {
  /** @param amount - At least 0; default: 1. */
  add(amount?: number, labels?: Labels): void;
  /** Removes the time series with these labels. Call it when its object no longer exists. */
  remove(labels: Labels): void;
}

/** A value that goes up and down. */
export interface Gauge {
  set(value: number, labels?: Labels): void;
  /** Removes the time series with these labels. Call it when its object no longer exists. */
  remove(labels: Labels): void;
}

/** A distribution: counts observed values by size. */
export interface Histogram {
  observe(value: number, labels?: Labels): void;
}

/**
 * Registry in which libraries create their metrics. A second request for the same name returns the
 * same metric.
 */
export interface Meter {
  counter(spec: MetricSpec): Counter;
  gauge(spec: MetricSpec): Gauge;
  histogram(spec: HistogramSpec): Histogram;
  /**
   * Calls `collect` before each read of the metrics, for values that are computed only then.
   * @returns A function that removes `collect`.
   */
  onExpose(collect: () => void | Promise<void>): () => void;
}

const doNothing = (): void => undefined;
const noMetric = { add: doNothing, set: doNothing, remove: doNothing, observe: doNothing };

/** Records nothing. For tests, and for libraries that are used without metrics. */
export const noMeter: Meter = {
  counter: () => noMetric,
  gauge: () => noMetric,
  histogram: () => noMetric,
  onExpose: () => doNothing,
};

/** Histogram bounds from 0.1 milliseconds to 10 seconds, in seconds. */
export const DURATION_BUCKETS: readonly number[] = [
  0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10,
];
