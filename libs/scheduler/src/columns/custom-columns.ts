import { customAmount, NO_CUSTOM, type CustomAmounts } from '../input/custom-resources.js';
import type { IndexedNode } from '../input/node.js';
import type { Slot } from './value-column.js';

/** Names with a column. Beyond the limit, the column that was made first is forgotten. */
const MAX_COLUMNS = 64;

/**
 * Amounts of custom resources by slot. The reserved amounts are kept for the few slots that have
 * any; a column of free amounts is made for each name that a request asks for, and follows all
 * changes until it is forgotten.
 */
export class CustomColumns {
  private readonly booked = new Map<Slot, Map<string, number>>();
  private readonly columns = new Map<string, Float64Array>();

  /** @param records - The node of each slot, shared with the table. */
  constructor(
    private readonly records: readonly (IndexedNode | undefined)[],
    private capacity: number,
  ) {}

  /** Returns the free amounts of a name by slot; negative on a node that has shrunk. */
  freeOf(name: string): Float64Array {
    const known = this.columns.get(name);
    if (known !== undefined) return known;
    const [oldest] = this.columns.keys();
    if (this.columns.size >= MAX_COLUMNS && oldest !== undefined) this.columns.delete(oldest);
    const column = new Float64Array(this.capacity);
    for (let slot = 0; slot < this.records.length; slot += 1)
      column[slot] = this.computeFree(slot, name);
    this.columns.set(name, column);
    return column;
  }

  /** Returns the amounts that reservations hold on a slot, with or without a node. */
  bookedOn(slot: Slot): CustomAmounts {
    const booked = this.booked.get(slot);
    return booked === undefined ? NO_CUSTOM : Object.fromEntries([...booked].sort(byName));
  }

  /** Adds (1) or subtracts (-1) the amounts of one replica. */
  book(slot: Slot, amounts: CustomAmounts, change: 1 | -1): void {
    if (amounts === NO_CUSTOM) return;
    const booked = this.booked.get(slot) ?? new Map<string, number>();
    this.booked.set(slot, booked);
    for (const [name, amount] of Object.entries(amounts)) {
      const sum = (booked.get(name) ?? 0) + change * amount;
      if (sum === 0) booked.delete(name);
      else booked.set(name, sum);
      this.refreshColumn(slot, name);
    }
    if (booked.size === 0) this.booked.delete(slot);
  }

  /** Forgets what reservations hold on a slot, after the last of them has gone. */
  clearBooked(slot: Slot): void {
    const booked = this.booked.get(slot);
    if (booked === undefined) return;
    this.booked.delete(slot);
    for (const name of booked.keys()) this.refreshColumn(slot, name);
  }

  /** Brings the columns up to date with the node of a slot. */
  refresh(slot: Slot): void {
    for (const name of this.columns.keys()) this.refreshColumn(slot, name);
  }

  /** Makes room for more slots. */
  grow(capacity: number): void {
    this.capacity = capacity;
    this.columns.clear();
  }

  /** Copies the reserved amounts into the empty columns of a copied table. */
  copyTo(copy: CustomColumns): void {
    for (const [slot, booked] of this.booked) copy.booked.set(slot, new Map(booked));
  }

  /** Bytes of the columns. */
  get bytes(): number {
    return this.columns.size * this.capacity * 8;
  }

  private refreshColumn(slot: Slot, name: string): void {
    const column = this.columns.get(name);
    if (column !== undefined) column[slot] = this.computeFree(slot, name);
  }

  private computeFree(slot: Slot, name: string): number {
    const custom = this.records[slot]?.allocatable.custom ?? NO_CUSTOM;
    return customAmount(custom, name) - (this.booked.get(slot)?.get(name) ?? 0);
  }
}

const byName = ([a]: readonly [string, number], [b]: readonly [string, number]): number =>
  a < b ? -1 : 1;
