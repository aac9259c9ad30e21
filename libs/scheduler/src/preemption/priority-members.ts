import type { Slot } from '../columns/value-column.js';
import { BlockBounds, holdsAll } from './block-bounds.js';
import { DIMENSIONS, type Demand } from './demand.js';

/** Slots that share a word of the set, and a bound. */
const BITS = 32;

/**
 * Returns what a member has of a dimension when the priority and all lower ones have left.
 * @param priority - That of the members.
 */
export type ReachOf = (slot: Slot, priority: number, dimension: number) => number;

/**
 * The nodes that hold replicas of one priority, with bounds of what they have when this priority
 * and all lower ones have left: one for 32 slots beside each other, and one for all.
 */
export class PriorityMembers {
  /** A bit for each slot. */
  private words = new Uint32Array(0);
  private count = 0;
  /** A block for each word. */
  private readonly bounds = new BlockBounds();
  /** Bounds of all members, by dimension. */
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
    this.raiseMost(word);
  }

  /** Removes a member. */
  remove(slot: Slot): void {
    const word = slot >>> 5;
    this.words[word] = (this.words[word] ?? 0) & ~(1 << (slot & (BITS - 1)));
    this.count -= 1;
    this.bounds.mark(word);
  }

  /**
   * Calls `visit` for the members that may have enough for a demand, in the order of the slots.
   * @param visit - Returns false for a member that has not enough.
   */
  forEachWith(demand: Demand, visit: (slot: Slot) => boolean): void {
    const { words, bounds } = this;
    let isInVain = true;
    for (let word = 0; word < words.length; word += 1) {
      let left = words[word] ?? 0;
      if (left === 0 || !bounds.mayHold(word, demand)) continue;
      let isFound = false;
      for (; left !== 0; left &= left - 1)
        if (visit(word * BITS + 31 - Math.clz32(left & -left))) isFound = true;
      if (isFound) isInVain = false;
      else this.tighten(word);
    }
    if (isInVain) this.tightenMost();
  }

  private tighten(word: number): void {
    if (!this.bounds.clear(word)) return;
    for (let left = this.words[word] ?? 0; left !== 0; left &= left - 1)
      this.raise(word, word * BITS + 31 - Math.clz32(left & -left));
  }

  private tightenMost(): void {
    this.most.fill(-Infinity);
    for (let word = 0; word < this.words.length; word += 1)
      if (this.words[word] !== 0) this.raiseMost(word);
  }

  /** Raises the bounds of all members to those of a word. */
  private raiseMost(word: number): void {
    for (let dimension = 0; dimension < DIMENSIONS; dimension += 1) {
      const bound = this.bounds.get(word, dimension);
      if (bound > (this.most[dimension] ?? 0)) this.most[dimension] = bound;
    }
  }

  /** Raises the bounds of a word to what a member has. */
  private raise(word: number, slot: Slot): void {
    for (let dimension = 0; dimension < DIMENSIONS; dimension += 1)
      this.bounds.raise(word, dimension, this.reachOf(slot, this.priority, dimension));
  }

  private grow(words: number): void {
    const grown = new Uint32Array(words);
    grown.set(this.words);
    this.words = grown;
    this.bounds.grow(words);
  }
}
