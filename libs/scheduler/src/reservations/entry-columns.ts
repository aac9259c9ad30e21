import type { ReplicaId } from '@cloudless/base';
import { copyOf } from '../columns/node-table.js';
import type { Slot } from '../columns/value-column.js';
import type { Claim } from './claim.js';
import type { LedgerGroup } from './replica-group.js';

/** Index of a reservation in the columns; reused after its release. */
export type Entry = number;

/** End of a list of entries. */
export const NO_ENTRY = -1;

const FIRST_CAPACITY = 64;

/**
 * All reservations as a structure of arrays. The entries of a node, and the entries of a group, are
 * linked in both directions, so that adding and removing take the same time in any cluster.
 */
export class EntryColumns {
  /** Undefined for a placement that is tried and not reserved. */
  readonly replicaIds: (ReplicaId | undefined)[] = [];
  readonly claims: (Claim | undefined)[] = [];
  slotOf = new Int32Array(FIRST_CAPACITY);
  groupOf = new Int32Array(FIRST_CAPACITY);
  leaving = new Uint8Array(FIRST_CAPACITY);
  private nextOnNode = new Int32Array(FIRST_CAPACITY);
  private previousOnNode = new Int32Array(FIRST_CAPACITY);
  private nextInGroup = new Int32Array(FIRST_CAPACITY);
  private previousInGroup = new Int32Array(FIRST_CAPACITY);
  /** First entry of each slot plus 1; 0 for none. */
  private firstOnNode = new Int32Array(FIRST_CAPACITY);
  private freeEntries: Entry[] = [];
  private used = 0;

  /** Number of entries. */
  get count(): number {
    return this.used - this.freeEntries.length;
  }

  add(
    replicaId: ReplicaId | undefined,
    slot: Slot,
    group: LedgerGroup,
    claim: Claim,
    leaving: boolean,
  ): Entry {
    const entry = this.freeEntries.pop() ?? this.append();
    if (slot >= this.firstOnNode.length) this.growSlots(slot);
    this.replicaIds[entry] = replicaId;
    this.claims[entry] = claim;
    this.slotOf[entry] = slot;
    this.groupOf[entry] = group.index;
    this.leaving[entry] = Number(leaving);
    const firstHere = (this.firstOnNode[slot] ?? 0) - 1;
    this.nextOnNode[entry] = firstHere;
    this.previousOnNode[entry] = NO_ENTRY;
    if (firstHere !== NO_ENTRY) this.previousOnNode[firstHere] = entry;
    this.firstOnNode[slot] = entry + 1;
    this.nextInGroup[entry] = group.first;
    this.previousInGroup[entry] = NO_ENTRY;
    if (group.first !== NO_ENTRY) this.previousInGroup[group.first] = entry;
    group.first = entry;
    return entry;
  }

  remove(entry: Entry, group: LedgerGroup): void {
    const slot = this.slotOf[entry] ?? 0;
    const nextHere = this.nextOnNode[entry] ?? NO_ENTRY;
    const previousHere = this.previousOnNode[entry] ?? NO_ENTRY;
    if (nextHere !== NO_ENTRY) this.previousOnNode[nextHere] = previousHere;
    if (previousHere !== NO_ENTRY) this.nextOnNode[previousHere] = nextHere;
    else this.firstOnNode[slot] = nextHere + 1;
    const next = this.nextInGroup[entry] ?? NO_ENTRY;
    const previous = this.previousInGroup[entry] ?? NO_ENTRY;
    if (next !== NO_ENTRY) this.previousInGroup[next] = previous;
    if (previous !== NO_ENTRY) this.nextInGroup[previous] = next;
    else group.first = next;
    this.replicaIds[entry] = undefined;
    this.claims[entry] = undefined;
    this.freeEntries.push(entry);
  }

  /** Lists the entries of a slot. */
  onNode(slot: Slot): Entry[] {
    const first = (this.firstOnNode[slot] ?? 0) - 1;
    return listFrom(first, this.nextOnNode);
  }

  /** Lists the entries of a group. */
  inGroup(group: LedgerGroup): Entry[] {
    return listFrom(group.first, this.nextInGroup);
  }

  clone(): EntryColumns {
    const copy = new EntryColumns();
    for (const id of this.replicaIds) copy.replicaIds.push(id);
    for (const claim of this.claims) copy.claims.push(claim);
    copy.leaving = copyOf(this.leaving);
    copy.firstOnNode = copyOf(this.firstOnNode);
    copy.slotOf = copyOf(this.slotOf);
    copy.groupOf = copyOf(this.groupOf);
    copy.nextOnNode = copyOf(this.nextOnNode);
    copy.previousOnNode = copyOf(this.previousOnNode);
    copy.nextInGroup = copyOf(this.nextInGroup);
    copy.previousInGroup = copyOf(this.previousInGroup);
    copy.freeEntries = [...this.freeEntries];
    copy.used = this.used;
    return copy;
  }

  /** Bytes of the arrays. */
  get bytes(): number {
    return this.slotOf.length * (6 * 4 + 1 + 2 * 8) + this.firstOnNode.byteLength;
  }

  private append(): Entry {
    if (this.used === this.slotOf.length) this.grow(this.used * 2);
    this.used += 1;
    return this.used - 1;
  }

  private grow(capacity: number): void {
    this.slotOf = copyOf(this.slotOf, capacity);
    this.groupOf = copyOf(this.groupOf, capacity);
    this.leaving = copyOf(this.leaving, capacity);
    this.nextOnNode = copyOf(this.nextOnNode, capacity);
    this.previousOnNode = copyOf(this.previousOnNode, capacity);
    this.nextInGroup = copyOf(this.nextInGroup, capacity);
    this.previousInGroup = copyOf(this.previousInGroup, capacity);
  }

  private growSlots(slot: Slot): void {
    this.firstOnNode = copyOf(this.firstOnNode, Math.max(slot + 1, this.firstOnNode.length * 2));
  }
}

function listFrom(first: Entry, next: Int32Array): Entry[] {
  const listed: Entry[] = [];
  for (let entry = first; entry !== NO_ENTRY; entry = next[entry] ?? NO_ENTRY) listed.push(entry);
  return listed;
}
