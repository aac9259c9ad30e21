import type { LabelMap } from '../input/labels.js';
import type { WorkloadTerm } from '../input/request.js';

/**
 * Workload terms by a label value that they require, so that only few terms have to be compared
 * with the labels of a workload: most terms name one value of one label.
 */
export class TermBuckets<Item extends { readonly term: WorkloadTerm }> {
  private readonly byLabel = new Map<string, Item[]>();
  /** Terms that require no value of a label. */
  private readonly others: Item[] = [];

  add(item: Item): void {
    const required = item.term.selector.find(({ operator }) => operator === 'In');
    if (required === undefined) this.others.push(item);
    for (const value of new Set(required?.values)) {
      const key = toKey(required?.key ?? '', value);
      const bucket = this.byLabel.get(key);
      if (bucket === undefined) this.byLabel.set(key, [item]);
      else bucket.push(item);
    }
  }

  /** Lists the terms that may match a workload with these labels, each of them once. */
  listCandidates(labels: LabelMap): readonly Item[] {
    const candidates = [...this.others];
    for (const [key, value] of labels)
      for (const item of this.byLabel.get(toKey(key, value)) ?? []) candidates.push(item);
    return candidates;
  }

  clear(): void {
    this.byLabel.clear();
    this.others.length = 0;
  }
}

function toKey(key: string, value: string): string {
  return `${key}\u0000${value}`;
}
