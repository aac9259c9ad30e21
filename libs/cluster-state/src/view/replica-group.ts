import type { ReplicaRecord } from '@cloudless/api/store';
import type { Stored } from './record-change.js';
import { countReplicas, type ReplicaCounts, type RunningCounts } from './replica-counts.js';
import { SequenceMap } from './sequence-map.js';

/**
 * Number of replicas from which a group counts with each change. To count a smaller group takes well
 * below a millisecond when the numbers are needed, and no memory.
 */
const MIN_COUNTED = 1_000;

/** The records of the replicas of one workload by sequence number. */
export class ReplicaGroup {
  private readonly records = new SequenceMap<Stored<ReplicaRecord>>();
  /** Defined from {@link MIN_COUNTED} replicas on. */
  private runningCounts: RunningCounts | undefined;

  get size(): number {
    return this.records.size;
  }

  /** Current numbers of the replicas. Later changes may alter the object: read it at once. */
  get counts(): ReplicaCounts {
    return this.runningCounts ?? countReplicas(this.records.values());
  }

  get(sequence: number): Stored<ReplicaRecord> | undefined {
    return this.records.get(sequence);
  }

  /**
   * Adds a record, or replaces the record of the same number in place.
   * @returns True when the record was added.
   */
  set(sequence: number, stored: Stored<ReplicaRecord>): boolean {
    const { records, runningCounts } = this;
    const { size } = records;
    const before = runningCounts === undefined ? undefined : records.get(sequence);
    records.set(sequence, stored);
    if (runningCounts === undefined) {
      if (records.size >= MIN_COUNTED) this.runningCounts = countReplicas(records.values());
    } else {
      if (before !== undefined) runningCounts.delete(before.value, sequence);
      runningCounts.add(stored.value, sequence);
    }
    return records.size > size;
  }

  /** Replaces a record of the group in place. */
  replace(sequence: number, before: Stored<ReplicaRecord>, after: Stored<ReplicaRecord>): void {
    this.records.set(sequence, after);
    this.runningCounts?.delete(before.value, sequence);
    this.runningCounts?.add(after.value, sequence);
  }

  delete(sequence: number): boolean {
    const { records, runningCounts } = this;
    if (runningCounts === undefined) return records.delete(sequence);
    const before = records.get(sequence);
    if (before === undefined) return false;
    records.delete(sequence);
    runningCounts.delete(before.value, sequence);
    // Half of the limit, so that a group at the limit does not recount its replicas all the time.
    if (2 * records.size < MIN_COUNTED) this.runningCounts = undefined;
    return true;
  }

  /**
   * Lists the records by ascending sequence number.
   * @param after - Only numbers above this number. Default: all records.
   */
  values(after?: number): IterableIterator<Stored<ReplicaRecord>> {
    return this.records.values(after);
  }
}
