import type { Slot } from '../columns/value-column.js';
import { DIMENSIONS } from './demand.js';

/** Slots that share a word of the set. */
const BITS = 32;

/**
 * The nodes that hold replicas of one priority, and a bound of what any of them has when this
 * priority and all lower ones have left.
 */
export class PriorityMembers {
  /** A bit for each slot. */
  private words = new Uint32Array(1);
  private count = 0;
  /** By dimension. Grows at once with the nodes, and shrinks by {@link tighten}. */
  readonly bounds = new Float64Array(DIMENSIONS).fill(-Infinity);
  /** True when a node has less than before, so that the bounds may be too high. */
  private isLoose = false;

  constructor(readonly priority: number) {}

  /** True when no node holds a replica of the priority. */
  get isEmpty(): boolean {
    return this.count === 0;
  }

  /** Adds a slot that is no member. */
  add(slot: Slot): void {
    const word = slot >>> 5;
    if (word >= this.words.length) {
      const grown = new Uint32Array(Math.max(word + 1, this.words.length * 2));
      grown.set(this.words);
      this.words = grown;
    }
    this.words[word] = (this.words[word] ?? 0) | (1 << (slot & (BITS - 1)));
    this.count += 1;
  }

  /** Removes a member. */
  remove(slot: Slot): void {
    const word = slot >>> 5;
    this.words[word] = (this.words[word] ?? 0) & ~(1 << (slot & (BITS - 1)));
    this.count -= 1;
    this.isLoose = true;
    if (this.count > 0) return;
    this.bounds.fill(-Infinity);
    this.isLoose = false;
  }

  /** Raises the bound of a dimension to what a member has. */
  raise(dimension: number, amount: number): void {
    if (amount > (this.bounds[dimension] ?? 0)) this.bounds[dimension] = amount;
  }

  /**
   * Computes the bounds anew, if they may be too high.
   * @param reachOf - Returns what a member has of a dimension when the priority and all lower ones
   *   have left.
   */
  tighten(reachOf: (slot: Slot, dimension: number) => number): void {
    if (!this.isLoose) return;
    this.isLoose = false;
    this.bounds.fill(-Infinity);
    this.forEach((slot) => {
      for (let dimension = 0; dimension < DIMENSIONS; dimension += 1)
        this.raise(dimension, reachOf(slot, dimension));
    });
  }

  /** Calls `visit` for each member, in the order of the slots. */
  forEach(visit: (slot: Slot) => void): void {
    const { words } = this;
    for (let word = 0; word < words.length; word += 1)
      for (let left = words[word] ?? 0; left !== 0; left &= left - 1)
        visit(word * BITS + 31 - Math.clz32(left & -left));
  }
}
