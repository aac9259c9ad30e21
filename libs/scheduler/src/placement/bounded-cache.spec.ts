import fc from 'fast-check';
import { BoundedCache } from './bounded-cache.js';

/** The newest entries by their last use, as a plain list. */
class PlainCache {
  readonly dropped: string[] = [];
  private entries: string[] = [];

  constructor(private readonly maxEntries: number) {}

  get(key: string): boolean {
    const isKnown = this.entries.includes(key);
    if (isKnown) this.entries = [...this.entries.filter((other) => other !== key), key];
    return isKnown;
  }

  set(key: string): void {
    this.entries.push(key);
    if (this.entries.length <= this.maxEntries) return;
    const kept = this.maxEntries - Math.floor(this.maxEntries / 64);
    while (this.entries.length > kept) this.dropOldest();
  }

  clear(): void {
    while (this.entries.length > 0) this.dropOldest();
  }

  private dropOldest(): void {
    this.dropped.push(this.entries.shift() ?? '');
  }
}

describe('BoundedCache', () => {
  it('drops the least recently used entries', () => {
    const step = fc.oneof(
      { weight: 20, arbitrary: fc.nat(15).map(String) },
      { weight: 20, arbitrary: fc.nat(300).map(String) },
      { weight: 1, arbitrary: fc.constant('clear') },
    );
    fc.assert(
      fc.property(
        fc.array(step, { maxLength: 400 }),
        fc.oneof(fc.integer({ min: 1, max: 9 }), fc.constant(130)),
        (steps, max) => {
          const dropped: string[] = [];
          const cache = new BoundedCache<string>(
            max,
            Infinity,
            () => 1,
            (key) => dropped.push(key),
          );
          const plain = new PlainCache(max);
          for (const key of steps) {
            if (key === 'clear') {
              cache.clear();
              plain.clear();
              continue;
            }
            const isKnown = plain.get(key);
            expect(cache.get(key)).toBe(isKnown ? key : undefined);
            if (isKnown) continue;
            cache.set(key, key);
            plain.set(key);
          }
          expect(dropped).toEqual(plain.dropped);
          expect(cache.bytes).toBe(cache.size);
        },
      ),
    );
  });

  it('keeps the newest entry, however large', () => {
    const cache = new BoundedCache<number>(10, 100, (bytes) => bytes);
    cache.set('a', 60);
    cache.set('b', 70);
    cache.set('c', 200);
    expect([cache.get('a'), cache.get('b'), cache.get('c')]).toEqual([undefined, undefined, 200]);
  });
});
