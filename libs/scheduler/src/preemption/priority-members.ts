import type { Slot } from '../columns/value-column.js';
import { DIMENSIONS, type Demand } from './demand.js';
import { holdsAll } from './free-amounts.js';

/** Slots that share a word of the set, and a bound. */
const BITS = 32;

/**
 * Returns what a member has of a dimension when the priority and all lower ones have left.
 * @param priority - That of the members.
 */
export type ReachOf = (slot: Slot, priority: number, dimension: number) => number;

/**
 * The nodes that hold replicas of one priority, with bounds of what they have when this priority
 * and all lower ones have left: one for 32 slots beside each other, and one for all. Bounds grow at
 * once with the nodes, and shrink when a look at the nodes was in vain.
 */
export class PriorityMembers {
  /** A bit for each slot. */
  private words = new Uint32Array(0);
  private count = 0;
  /** By word, then dimension. */
  private bounds = new Float64Array(0);
  /** 1 for each word with a node that has less than before. */
  private isLoose = new Uint8Array(0);
  /** By dimension. */
  private readonly most = new Float64Array(DIMENSIONS).fill(-Infinity);

  constructor(
    readonly priority: number,
    private readonly reachOf: ReachOf,
  ) {}

  /** Returns false when no member has enough for a demand. */
  mayHold({ fixed, amounts }: Demand): boolean {
    return this.count > 0 && holdsAll(this.most, 0, fixed, amounts);
  }

  /** Adds a slot that is no member. */
  add(slot: Slot): void {
    const word = slot >>> 5;
    if (word >= this.words.length) this.grow(Math.max(word + 1, this.words.length * 2));
    this.words[word] = (this.words[word] ?? 0) | (1 << (slot & (BITS - 1)));
    this.count += 1;
    this.raise(word, slot);
    for (let dimension = 0; dimension < DIMENSIONS; dimension += 1) {
      const bound = this.bounds[word * DIMENSIONS + dimension] ?? 0;
      if (bound > (this.most[dimension] ?? 0)) this.most[dimension] = bound;
    }
  }

  /** Removes a member. */
  remove(slot: Slot): void {
    const word = slot >>> 5;
    this.words[word] = (this.words[word] ?? 0) & ~(1 << (slot & (BITS - 1)));
    this.count -= 1;
    this.isLoose[word] = 1;
  }

  /**
   * Calls `visit` for the members that may have enough for a demand, in the order of the slots.
   * @param visit - Returns false for a member that has not enough.
   */
  forEachWith({ fixed, amounts }: Demand, visit: (slot: Slot) => boolean): void {
    const { words, bounds } = this;
    let isInVain = true;
    for (let word = 0; word < words.length; word += 1) {
      let left = words[word] ?? 0;
      if (left === 0 || !holdsAll(bounds, word * DIMENSIONS, fixed, amounts)) continue;
      let isFound = false;
      for (; left !== 0; left &= left - 1)
        if (visit(word * BITS + 31 - Math.clz32(left & -left))) isFound = true;
      if (isFound) isInVain = false;
      else if (this.isLoose[word] === 1) this.tighten(word);
    }
    if (isInVain) this.tightenMost();
  }

  private tighten(word: number): void {
    this.isLoose[word] = 0;
    this.bounds.fill(-Infinity, word * DIMENSIONS, (word + 1) * DIMENSIONS);
    for (let left = this.words[word] ?? 0; left !== 0; left &= left - 1)
      this.raise(word, word * BITS + 31 - Math.clz32(left & -left));
  }

  private tightenMost(): void {
    const { most, bounds, words } = this;
    most.fill(-Infinity);
    for (let word = 0; word < words.length; word += 1) {
      if (words[word] === 0) continue;
      for (let dimension = 0; dimension < DIMENSIONS; dimension += 1) {
        const bound = bounds[word * DIMENSIONS + dimension] ?? 0;
        if (bound > (most[dimension] ?? 0)) most[dimension] = bound;
      }
    }
  }

  /** Raises the bounds of a word to what a member has. */
  private raise(word: number, slot: Slot): void {
    const { bounds, priority } = this;
    for (let dimension = 0; dimension < DIMENSIONS; dimension += 1) {
      const reach = this.reachOf(slot, priority, dimension);
      const at = word * DIMENSIONS + dimension;
      if (reach > (bounds[at] ?? 0)) bounds[at] = reach;
    }
  }

  private grow(words: number): void {
    const grown = new Uint32Array(words);
    grown.set(this.words);
    this.words = grown;
    const bounds = new Float64Array(words * DIMENSIONS).fill(-Infinity);
    bounds.set(this.bounds);
    this.bounds = bounds;
    const isLoose = new Uint8Array(words);
    isLoose.set(this.isLoose);
    this.isLoose = isLoose;
  }
}
