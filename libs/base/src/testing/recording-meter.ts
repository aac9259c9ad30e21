import type { HistogramSpec, Labels, Meter, MetricSpec } from '../observability/meter.js';

/** A meter for tests that records values in memory. */
export class RecordingMeter implements Meter {
  /** The specs of all created metrics by name. */
  readonly specs = new Map<string, MetricSpec>();
  private readonly values = new Map<string, Map<string, number>>();
  private readonly collectors = new Set<() => Promise<void>>();

  counter(spec: MetricSpec) {
    const series = this.getOrCreateSeries(spec);
    return {
      add: (amount = 1, labels: Labels = {}) =>
        changeSeries(series, labels, (before) => before + amount),
      remove: (labels: Labels) => void series.delete(keyOf(labels)),
    };
  }

  gauge(spec: MetricSpec) {
    const series = this.getOrCreateSeries(spec);
    return {
      set: (value: number, labels: Labels = {}) => changeSeries(series, labels, () => value),
      remove: (labels: Labels) => void series.delete(keyOf(labels)),
    };
  }

  /** Creates a histogram that records only the number of values. */
  histogram(spec: HistogramSpec) {
    const series = this.getOrCreateSeries(spec);
    return {
      observe: (_value: number, labels: Labels = {}) =>
        changeSeries(series, labels, (before) => before + 1),
    };
  }

  onExpose(collect: () => void | Promise<void>): () => void {
    const run = async (): Promise<void> => collect();
    this.collectors.add(run);
    return () => void this.collectors.delete(run);
  }

  /**
   * Runs the collectors, then returns the value of a metric: the sum over all time series that have
   * these labels; 0 when there is none.
   */
  async read(name: string, labels: Labels = {}): Promise<number> {
    await Promise.all([...this.collectors].map((collect) => collect()));
    let sum = 0;
    for (const [key, value] of this.values.get(name) ?? []) {
      const seriesLabels = JSON.parse(key) as Labels;
      if (Object.entries(labels).every(([label, text]) => seriesLabels[label] === text))
        sum += value;
    }
    return sum;
  }

  /** Returns the label sets that a metric currently has. */
  labelsOf(name: string): readonly Labels[] {
    return [...(this.values.get(name)?.keys() ?? [])].map((key) => JSON.parse(key) as Labels);
  }

  private getOrCreateSeries(spec: MetricSpec): Map<string, number> {
    this.specs.set(spec.name, spec);
    const series = this.values.get(spec.name) ?? new Map<string, number>();
    this.values.set(spec.name, series);
    return series;
  }
}

function keyOf(labels: Labels): string {
  return JSON.stringify(labels);
}

function changeSeries(
  series: Map<string, number>,
  labels: Labels,
  next: (before: number) => number,
): void {
  const key = keyOf(labels);
  series.set(key, next(series.get(key) ?? 0));
}
