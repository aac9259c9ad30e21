/** Label values of one sample, by label name. */
export type Labels = Readonly<Record<string, string>>;

/** What a metric is called and says. */
export interface MetricSpec {
  /**
   * Prometheus name, base unit last: `cloudless_state_commit_duration_seconds`; a counter ends in
   * `_total`.
   */
  readonly name: string;
  /** One sentence for who reads the graph. */
  readonly help: string;
  /** Names of its labels; their values must come from a small set, never from users. */
  readonly labels?: readonly string[];
}

/** As {@link MetricSpec}, of a histogram. */
export interface HistogramSpec extends MetricSpec {
  /** Upper bounds, ascending. */
  readonly buckets: readonly number[];
}

/** Only grows. */
export interface Counter {
  /** @param amount - 0 or more; default 1. */
  add(amount?: number, labels?: Labels): void;
  /** Forgets one label set: what it spoke of is gone. */
  remove(labels: Labels): void;
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

/**
 * Where a library reports what it measures. Asking twice for the same name gives the same metric.
 */
export interface Meter {
  counter(spec: MetricSpec): Counter;
  gauge(spec: MetricSpec): Gauge;
  histogram(spec: HistogramSpec): Histogram;
  /**
   * Calls `collect` each time the metrics are read, for what is only worth knowing then.
   * @returns Ends that.
   */
  onExpose(collect: () => void | Promise<void>): () => void;
}

const nothing = (): void => undefined;
const ignoring = { add: nothing, set: nothing, remove: nothing, observe: nothing };

/** Measures nothing: for tests and for libraries used without metrics. */
export const noMeter: Meter = {
  counter: () => ignoring,
  gauge: () => ignoring,
  histogram: () => ignoring,
  onExpose: () => nothing,
};

/** Upper bounds for what takes from a tenth of a millisecond to ten seconds, in seconds. */
export const DURATION_BUCKETS: readonly number[] = [
  0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10,
];
