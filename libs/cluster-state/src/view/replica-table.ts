import type { ReplicaRecord } from '@cloudless/api/store';
import type { RecordMap, Stored } from './record-change.js';
import { ReplicaGroup } from './replica-group.js';
import { countReplicas, type ReplicaCounts } from './replica-counts.js';

/** Digits of a sequence number in a key, see `toReplicaKeyId`. */
const KEY_DIGITS = 10;

/**
 * The records of replicas by key, by id, and by workload, in one index: key (`<uid>/<sequence>`) and
 * id (`<uid>-<sequence>`) both follow from workload and sequence number. A map for each of them would
 * take a third of the memory of a replica. Records are grouped by workload; those of one workload
 * are in the order of their sequence numbers.
 */
export class ReplicaTable implements RecordMap<Stored<ReplicaRecord>> {
  /** By uid of the workload, then by sequence number. */
  private readonly groups = new Map<string, ReplicaGroup>();
  /** Records whose key or id does not follow from uid and sequence number, by key. */
  private readonly irregular = new Map<string, Stored<ReplicaRecord>>();
  /** The group that was read last: neighbours in the store have the same workload. */
  private lastUid: string | undefined;
  private lastGroup: ReplicaGroup | undefined;
  private count = 0;

  get size(): number {
    return this.count;
  }

  /** @param key - Id in the key of the record, `<uid>/<sequence>`. */
  get(key: string): Stored<ReplicaRecord> | undefined {
    const at = key.lastIndexOf('/');
    const sequence = parseKeySequence(key, at + 1);
    const found = sequence < 0 ? undefined : this.findGroup(key, at)?.get(sequence);
    return found ?? (this.irregular.size === 0 ? undefined : this.irregular.get(key));
  }

  /** Returns the record of a replica by the id of the replica. */
  getById(replicaId: string): Stored<ReplicaRecord> | undefined {
    const at = replicaId.lastIndexOf('-');
    const sequence = parseSequence(replicaId, at + 1);
    const found = sequence < 0 ? undefined : this.findGroup(replicaId, at)?.get(sequence);
    if (found?.value.id === replicaId) return found;
    for (const other of this.irregular.values()) if (other.value.id === replicaId) return other;
    return undefined;
  }

  /** Returns the records of the replicas of a workload, mostly oldest first. */
  ofWorkload(uid: string): Iterable<Stored<ReplicaRecord>> {
    const regular = this.groups.get(uid)?.values() ?? [];
    if (this.irregular.size === 0) return regular;
    return [...regular, ...this.irregularOf(uid)];
  }

  /**
   * Lists the records of the replicas of a workload in ascending order of their sequence numbers,
   * and reads only as many as the caller takes. The table must not change during the iteration.
   * @param after - Only replicas with a higher sequence number. Default: all replicas.
   */
  ofWorkloadInOrder(uid: string, after?: number): Iterable<Stored<ReplicaRecord>> {
    const others = this.irregular.size === 0 ? [] : this.irregularOf(uid);
    if (others.length === 0) return this.groups.get(uid)?.values(after) ?? [];
    const min = after ?? -Infinity;
    return [...this.ofWorkload(uid)]
      .filter(({ value }) => Number(value.sequence) > min)
      .sort((a, b) => Number(a.value.sequence - b.value.sequence));
  }

  /** Returns the numbers of the replicas of a workload. */
  countsOf(uid: string): ReplicaCounts {
    const others = this.irregular.size === 0 ? [] : this.irregularOf(uid);
    const group = this.groups.get(uid);
    if (others.length === 0 && group !== undefined) return group.counts;
    return countReplicas(this.ofWorkload(uid));
  }

  /** Adds a record; replaces the record of the same key in place. */
  set(key: string, stored: Stored<ReplicaRecord>): this {
    const at = key.lastIndexOf('/');
    const sequence = parseKeySequence(key, at + 1);
    const group = sequence < 0 ? undefined : this.findGroup(key, at);
    this.setIn(group, key, at, sequence, stored);
    return this;
  }

  /**
   * Sets a record, or deletes it.
   * @param after - The new record; undefined deletes the record.
   * @returns The record before.
   */
  exchange(
    key: string,
    after: Stored<ReplicaRecord> | undefined,
  ): Stored<ReplicaRecord> | undefined {
    const at = key.lastIndexOf('/');
    const sequence = parseKeySequence(key, at + 1);
    const group = sequence < 0 ? undefined : this.findGroup(key, at);
    const before = group?.get(sequence);
    // Most changes replace a record by one of the same replica, which then is regular too.
    if (before !== undefined && after !== undefined && isSameReplica(before.value, after.value)) {
      group?.replace(sequence, before, after);
      return before;
    }
    const replaced = before ?? this.irregular.get(key);
    if (after === undefined) this.delete(key);
    else this.setIn(group, key, at, sequence, after);
    return replaced;
  }

  delete(key: string): boolean {
    const at = key.lastIndexOf('/');
    const sequence = parseKeySequence(key, at + 1);
    const group = sequence < 0 ? undefined : this.findGroup(key, at);
    const isDeleted = group?.delete(sequence) === true || this.irregular.delete(key);
    if (!isDeleted) return false;
    this.count -= 1;
    if (group?.size === 0) this.removeGroup(key.slice(0, at));
    return true;
  }

  *keys(): Generator<string, void> {
    for (const [key] of this) yield key;
  }

  *values(): Generator<Stored<ReplicaRecord>, void> {
    for (const group of this.groups.values()) for (const stored of group.values()) yield stored;
    for (const stored of this.irregular.values()) yield stored;
  }

  *[Symbol.iterator](): Generator<[string, Stored<ReplicaRecord>], void> {
    for (const [uid, group] of this.groups)
      for (const stored of group.values())
        yield [`${uid}/${String(stored.value.sequence).padStart(KEY_DIGITS, '0')}`, stored];
    for (const [key, stored] of this.irregular) yield [key, stored];
  }

  private irregularOf(uid: string): readonly Stored<ReplicaRecord>[] {
    return [...this.irregular.values()].filter(({ value }) => value.uid === uid);
  }

  /**
   * Implements {@link set}.
   * @param group - The group of the workload; undefined when there is none.
   * @param at - Index of the slash before the sequence number.
   * @param sequence - The sequence number in the key; -1 when there is none.
   */
  private setIn(
    group: ReplicaGroup | undefined,
    key: string,
    at: number,
    sequence: number,
    stored: Stored<ReplicaRecord>,
  ): void {
    if (sequence < 0 || !isRegular(stored.value, key, at, sequence)) {
      this.delete(key);
      this.irregular.set(key, stored);
      this.count += 1;
      return;
    }
    if (this.irregular.size > 0 && this.irregular.delete(key)) this.count -= 1;
    if ((group ?? this.addGroup(stored.value.uid)).set(sequence, stored)) this.count += 1;
  }

  /** Returns the group of the workload whose uid is the beginning of `text`, up to `end`. */
  private findGroup(text: string, end: number): ReplicaGroup | undefined {
    const { lastUid } = this;
    if (lastUid?.length === end && text.startsWith(lastUid)) return this.lastGroup;
    const uid = text.slice(0, end);
    const group = this.groups.get(uid);
    if (group !== undefined) [this.lastUid, this.lastGroup] = [uid, group];
    return group;
  }

  private addGroup(uid: string): ReplicaGroup {
    const group = new ReplicaGroup();
    this.groups.set(uid, group);
    [this.lastUid, this.lastGroup] = [uid, group];
    return group;
  }

  private removeGroup(uid: string): void {
    this.groups.delete(uid);
    [this.lastUid, this.lastGroup] = [undefined, undefined];
  }
}

function isSameReplica(a: ReplicaRecord, b: ReplicaRecord): boolean {
  return a.id === b.id && a.uid === b.uid && a.sequence === b.sequence;
}

/** Returns true when key and id of a replica follow from its workload and sequence number. */
function isRegular(
  { id, uid, sequence }: ReplicaRecord,
  key: string,
  uidEnd: number,
  keySequence: number,
): boolean {
  return (
    uid.length === uidEnd &&
    key.startsWith(uid) &&
    Number(sequence) === keySequence && // exact, because the number in the key is a safe integer
    id.startsWith(uid) &&
    id[uidEnd] === '-' &&
    parseSequence(id, uidEnd + 1) === keySequence
  );
}

/** Reads the padded number at the end of a key; -1 for any other text. */
function parseKeySequence(key: string, start: number): number {
  const digits = key.length - start;
  const isPadded = digits === KEY_DIGITS || (digits > KEY_DIGITS && key[start] !== '0');
  return isPadded && start > 0 ? parseDigits(key, start) : -1;
}

/**
 * Reads the sequence number of a replica id from the index `start` to the end; -1 for any other
 * text, for leading zeros, and for a number above 2^53 - 1.
 */
export function parseSequence(id: string, start: number): number {
  const digits = id.length - start;
  const isNumber = digits > 0 && start > 0 && (digits === 1 || id[start] !== '0');
  return isNumber ? parseDigits(id, start) : -1;
}

function parseDigits(text: string, start: number): number {
  let value = 0;
  for (let index = start; index < text.length; index += 1) {
    const digit = text.charCodeAt(index) - 0x30;
    if (digit < 0 || digit > 9) return -1;
    value = 10 * value + digit;
  }
  return Number.isSafeInteger(value) ? value : -1;
}
