import { createSeededRandom, type Random } from '@cloudless/base';

/** Random draws for the simulation. */
export class SimRandom {
  private readonly random: Random;

  constructor(seed: number) {
    this.random = createSeededRandom(seed);
  }

  /** Returns an independent source; later draws do not affect each other. */
  fork(): SimRandom {
    return new SimRandom(Math.floor(this.random.next() * 0x7fff_ffff));
  }

  /** Returns the plain source that the product's parts take. */
  toPlainRandom(): Random {
    return createSeededRandom(Math.floor(this.random.next() * 0x7fff_ffff));
  }

  /** Returns true with this probability, 0 to 1. */
  chance(share: number): boolean {
    return this.random.next() < share;
  }

  /** Returns a number from `from` to `to`. */
  between(from: number, to: number): number {
    return from + this.random.next() * (to - from);
  }

  /** Returns a whole number from `from` to `to`, both included. */
  wholeNumber(from: number, to: number): number {
    return from + Math.floor(this.random.next() * (to - from + 1));
  }

  /** Returns one of the items; undefined for an empty list. */
  pick<Item>(items: readonly [Item, ...Item[]]): Item;
  pick<Item>(items: readonly Item[]): Item | undefined;
  pick<Item>(items: readonly Item[]): Item | undefined {
    return items[Math.floor(this.random.next() * items.length)];
  }

  /** Returns one of the keys with a probability proportional to its weight. */
  pickWeighted<Key extends string>(weights: Readonly<Record<Key, number>>): Key {
    const entries = Object.entries(weights) as [Key, number][];
    let left = this.random.next() * entries.reduce((sum, [, weight]) => sum + weight, 0);
    for (const [key, weight] of entries) {
      left -= weight;
      if (left < 0) return key;
    }
    return (entries[0] as [Key, number])[0];
  }
}
