import { createSeededRandom, type Random } from '@cloudless/base';

/** Chance with the questions that a simulation asks. */
export class SimRandom {
  private readonly random: Random;

  constructor(seed: number) {
    this.random = createSeededRandom(seed);
  }

  /** Another source, which draws nothing of this one afterwards. */
  fork(): SimRandom {
    return new SimRandom(Math.floor(this.random.next() * 0x7fff_ffff));
  }

  /** For the parts of the product, which take a plain source. */
  plain(): Random {
    return createSeededRandom(Math.floor(this.random.next() * 0x7fff_ffff));
  }

  chance(share: number): boolean {
    return this.random.next() < share;
  }

  /** A number from `from` to `to`. */
  between(from: number, to: number): number {
    return from + this.random.next() * (to - from);
  }

  /** A whole number from `from` to `to`, both included. */
  whole(from: number, to: number): number {
    return from + Math.floor(this.random.next() * (to - from + 1));
  }

  pick<Item>(items: readonly [Item, ...Item[]]): Item;
  pick<Item>(items: readonly Item[]): Item | undefined;
  pick<Item>(items: readonly Item[]): Item | undefined {
    return items[Math.floor(this.random.next() * items.length)];
  }

  /** One of the keys, as often as its weight says. */
  weighted<Key extends string>(weights: Readonly<Record<Key, number>>): Key {
    const entries = Object.entries(weights) as [Key, number][];
    let left = this.random.next() * entries.reduce((sum, [, weight]) => sum + weight, 0);
    for (const [key, weight] of entries) {
      left -= weight;
      if (left < 0) return key;
    }
    return (entries[0] as [Key, number])[0];
  }
}
