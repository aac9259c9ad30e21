import type { Labels } from '@cloudless/base';

/** Between the values of a key. Not in label values, which come from small sets of names. */
const SEPARATOR = '\u0000';
const MISSING = '\u0001';

/** Finds what belongs to a label set of one metric, in a fraction of the time of a hash of objects. */
export class SeriesTable<State> {
  private readonly byKey = new Map<string, State>();

  /** @param names - The label names of the metric. */
  constructor(private readonly names: readonly string[]) {}

  get size(): number {
    return this.byKey.size;
  }

  get(labels: Labels): State | undefined {
    return this.byKey.get(this.toKey(labels));
  }

  set(labels: Labels, state: State): void {
    this.byKey.set(this.toKey(labels), state);
  }

  delete(labels: Labels): void {
    this.byKey.delete(this.toKey(labels));
  }

  values(): Iterable<State> {
    return this.byKey.values();
  }

  /** Other names than those of the metric give a key of their own, for which there is no state. */
  private toKey(labels: Labels): string {
    let count = 0;
    for (const _ in labels) count += 1;
    let key = '';
    for (const name of this.names) {
      const value = labels[name];
      if (value !== undefined) count -= 1;
      const part = value ?? MISSING;
      key = key === '' ? part : key + SEPARATOR + part;
    }
    return count === 0 ? key : key + SEPARATOR + Object.keys(labels).join();
  }
}
