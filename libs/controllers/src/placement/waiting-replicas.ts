import type { ReplicaRecord } from '@cloudless/api/store';
import { isNominated } from '../preemption/nominations.js';
import { SequenceList, type SequenceEntry } from './sequence-list.js';

/** Returns true for the id of a replica to leave out. */
type Skip = (id: string) => boolean;

/**
 * The waiting replicas of one batch, by the reason that their records name, each in ascending order
 * of the sequence numbers. A refusal is found in most records already, so that only the few others
 * are read, however many replicas wait. Nominated replicas, which keep a reason that names their
 * node, are apart.
 */
export class WaitingReplicas {
  private readonly byReason = new Map<string, SequenceList>();
  private readonly nominated = new SequenceList();
  private count = 0;
  private listed = 0;

  get size(): number {
    return this.count;
  }

  /** Number of entries that were read for lists since the start, to show the work of decisions. */
  get listedCount(): number {
    return this.listed;
  }

  /** Adds a replica, which must not be contained. */
  add(replica: ReplicaRecord): void {
    const list = this.findList(replica) ?? new SequenceList();
    if (list.size === 0 && list !== this.nominated) this.byReason.set(replica.reason, list);
    list.add(Number(replica.sequence), replica.id);
    this.count += 1;
  }

  /** @param replica - The record with which the replica was added. */
  has(replica: ReplicaRecord): boolean {
    return this.findList(replica)?.has(Number(replica.sequence), replica.id) ?? false;
  }

  /**
   * Removes a replica.
   * @param replica - The record with which the replica was added.
   * @returns False when the replica is not contained.
   */
  delete(replica: ReplicaRecord): boolean {
    const list = this.findList(replica);
    if (list?.delete(Number(replica.sequence), replica.id) !== true) return false;
    this.count -= 1;
    if (list.size === 0 && list !== this.nominated) this.byReason.delete(replica.reason);
    return true;
  }

  /** Returns the ids of the first replicas by sequence number. */
  listFirst(limit: number, skip: Skip): string[] {
    return this.merge([this.nominated, ...this.byReason.values()], limit, skip);
  }

  /** Returns the ids of all nominated replicas, by sequence number. */
  listNominated(skip: Skip): string[] {
    return this.merge([this.nominated], Number.POSITIVE_INFINITY, skip);
  }

  /** Returns the ids of the first replicas without a nomination whose reason differs. */
  listWithOtherReason(reason: string, limit: number, skip: Skip): string[] {
    const others: SequenceList[] = [];
    for (const [other, list] of this.byReason) if (other !== reason) others.push(list);
    return this.merge(others, limit, skip);
  }

  /** Returns true when the record of a replica without a nomination names the reason. */
  hasReason(reason: string): boolean {
    return this.byReason.has(reason);
  }

  private findList(replica: ReplicaRecord): SequenceList | undefined {
    return isNominated(replica) ? this.nominated : this.byReason.get(replica.reason);
  }

  private merge(lists: readonly SequenceList[], limit: number, skip: Skip): string[] {
    const merged: SequenceEntry[] = [];
    for (const list of lists) {
      const wanted = merged.length + Math.min(limit, list.size);
      for (const entry of list) {
        if (merged.length >= wanted) break;
        this.listed += 1;
        if (!skip(entry.id)) merged.push(entry);
      }
    }
    if (lists.length > 1) merged.sort((a, b) => a.sequence - b.sequence);
    return merged.slice(0, limit).map(({ id }) => id);
  }
}
