import type { ReplicaRecord } from '@cloudless/api/store';
import type { Stored } from './record-change.js';
import { RunningTally, tallyReplicas, type ReplicaTally } from './replica-tally.js';
import { SortedNumbers } from './sorted-numbers.js';

/**
 * Number of replicas from which a group keeps its order and its numbers with each change. Those of a
 * smaller group take well below a millisecond when they are needed, and no memory.
 */
const MIN_INDEXED = 1_000;

/** The order and the numbers of a group of very many replicas. */
interface GroupIndex {
  readonly order: SortedNumbers;
  readonly tally: RunningTally;
}

/** The records of the replicas of one workload by sequence number. */
export class ReplicaGroup {
  private readonly records = new Map<number, Stored<ReplicaRecord>>();
  private index: GroupIndex | undefined;

  get size(): number {
    return this.records.size;
  }

  /** The numbers of the replicas now. They may follow later changes: read them at once. */
  get tally(): ReplicaTally {
    return this.index?.tally ?? tallyReplicas(Array.from(this.values(), ({ value }) => value));
  }

  get(sequence: number): Stored<ReplicaRecord> | undefined {
    return this.records.get(sequence);
  }

  /**
   * Adds a record, or replaces the record of the same number in place.
   * @returns True when the record was added.
   */
  set(sequence: number, stored: Stored<ReplicaRecord>): boolean {
    const { records, index } = this;
    const { size } = records;
    const before = index === undefined ? undefined : records.get(sequence);
    records.set(sequence, stored);
    if (index === undefined) {
      if (records.size >= MIN_INDEXED) this.index = createIndex(records);
    } else {
      if (before === undefined) index.order.add(sequence);
      else index.tally.delete(before.value, sequence);
      index.tally.add(stored.value, sequence);
    }
    return records.size > size;
  }

  /** Replaces a record of the group in place. */
  replace(sequence: number, before: Stored<ReplicaRecord>, after: Stored<ReplicaRecord>): void {
    this.records.set(sequence, after);
    this.index?.tally.delete(before.value, sequence);
    this.index?.tally.add(after.value, sequence);
  }

  delete(sequence: number): boolean {
    const { records, index } = this;
    if (index === undefined) return records.delete(sequence);
    const before = records.get(sequence);
    if (before === undefined) return false;
    records.delete(sequence);
    index.order.delete(sequence);
    index.tally.delete(before.value, sequence);
    // Half of the limit, so that a group at the limit does not begin and end its index all the time.
    if (2 * records.size < MIN_INDEXED) this.index = undefined;
    return true;
  }

  /** Lists the records in the order in which they were added. */
  values(): Iterable<Stored<ReplicaRecord>> {
    return this.records.values();
  }

  entries(): Iterable<[number, Stored<ReplicaRecord>]> {
    return this.records;
  }

  /** @see ReplicaTable.ofWorkloadInOrder */
  *inOrder(after = -Infinity): Generator<Stored<ReplicaRecord>, void> {
    const sequences =
      this.index?.order.after(after) ??
      [...this.records.keys()].filter((sequence) => sequence > after).sort((a, b) => a - b);
    for (const sequence of sequences) {
      const stored = this.records.get(sequence);
      if (stored !== undefined) yield stored;
    }
  }
}

function createIndex(records: ReadonlyMap<number, Stored<ReplicaRecord>>): GroupIndex {
  const index = { order: new SortedNumbers(), tally: new RunningTally() };
  for (const [sequence, { value }] of records) {
    index.order.add(sequence);
    index.tally.add(value, sequence);
  }
  return index;
}
