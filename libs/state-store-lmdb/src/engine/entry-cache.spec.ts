import { EntryCache } from './entry-cache.js';
import { ReadEntry } from './table-reads.js';

const anEntry = (key: string, modRevision = 1n, bytes = 8): ReadEntry =>
  new ReadEntry(key, modRevision, undefined, new Uint8Array(bytes), 0);

/** Both ways to add an entry, and how much the cache keeps: entries of a half, bytes of buffers. */
const WAYS = [
  {
    way: 'read',
    add: (cache: EntryCache, entry: ReadEntry): void => cache.addRead(entry),
    entries: 16_384,
    buffers: 16 * 1024 * 1024,
  },
  {
    way: 'written',
    add: (cache: EntryCache, entry: ReadEntry): void => cache.addWritten(entry, false),
    entries: 4_096,
    buffers: 4 * 1024 * 1024,
  },
];

describe('EntryCache', () => {
  it('returns the newest entry of a key, and none after its deletion', () => {
    const cache = new EntryCache();
    cache.addWritten(anEntry('a', 1n), true);
    for (let each = 0; each < 4_096; each += 1) cache.addWritten(anEntry(`k${each}`), true);
    cache.addWritten(anEntry('a', 2n), false);
    expect(cache.get('a')?.modRevision).toBe(2n);
    cache.delete('a');
    expect(cache.get('a')).toBeUndefined();
  });

  it('forgets the entry that was read when another one is written or deleted', () => {
    const cache = new EntryCache();
    cache.addRead(anEntry('a', 1n));
    cache.addWritten(anEntry('a', 2n), false);
    expect(cache.get('a')?.modRevision).toBe(2n);
    for (let each = 0; each < 8_192; each += 1) cache.addWritten(anEntry(`k${each}`), true);
    expect(cache.get('a')).toBeUndefined();
    cache.addRead(anEntry('a', 2n));
    cache.delete('a');
    expect(cache.get('a')).toBeUndefined();
  });

  it('keeps entries that were read while many others are written', () => {
    const cache = new EntryCache();
    cache.addRead(anEntry('a'));
    for (let each = 0; each < 80_000; each += 1) cache.addWritten(anEntry(`k${each}`), true);
    expect(cache.get('a')).toBeDefined();
  });

  it.each(WAYS)('keeps the newest entries that were $way, in bounded memory', (each) => {
    const cache = new EntryCache();
    for (let index = 0; index < 80_000; index += 1) each.add(cache, anEntry(`k${index}`));
    const kept = Array.from({ length: 80_000 }, (_, index) => cache.get(`k${index}`));
    expect(kept.slice(-each.entries)).not.toContain(undefined);
    expect(kept.filter((entry) => entry !== undefined).length).toBeLessThanOrEqual(
      2 * each.entries,
    );
  });

  it.each(WAYS)('is empty after clear when entries were $way', ({ add, entries }) => {
    const cache = new EntryCache();
    for (let index = 0; index <= entries; index += 1) add(cache, anEntry(`k${index}`));
    cache.clear();
    expect([cache.get('k0'), cache.get(`k${entries}`)]).toEqual([undefined, undefined]);
  });

  it('forgets an entry whose value has become large', () => {
    const cache = new EntryCache();
    cache.addRead(anEntry('a', 1n));
    cache.addWritten(anEntry('a', 2n), false);
    cache.addWritten(anEntry('a', 3n, 2_000), false);
    expect(cache.get('a')).toBeUndefined();
  });

  it('copies a value that is a part of a buffer larger than those of encoders', () => {
    const cache = new EntryCache();
    const value = new Uint8Array(65_536).fill(7).subarray(100, 300);
    cache.addWritten(new ReadEntry('a', 1n, undefined, value, 0), true);
    const kept = cache.get('a')?.value;
    expect(kept).toEqual(value);
    expect(kept?.buffer.byteLength).toBe(200);
  });

  it.each(
    WAYS.flatMap((way) => [
      { ...way, name: 'each value has a buffer of its own', shared: 1 },
      { ...way, name: 'a buffer has the values of many entries', shared: 150 },
    ]),
  )('bounds the buffers of entries that were $way when $name', ({ add, buffers, shared }) => {
    const cache = new EntryCache();
    let buffer = new Uint8Array(32_768);
    const keys = Array.from({ length: 30_000 }, (_, each) => `k${each % 20_000}`);
    for (const [index, key] of keys.entries()) {
      if (index % shared === 0) buffer = new Uint8Array(32_768);
      const value = buffer.subarray((index % shared) * 200, (index % shared) * 200 + 200);
      add(cache, new ReadEntry(key, BigInt(index), undefined, value, 0));
    }
    const kept = new Set(keys.map((key) => cache.get(key)?.value.buffer));
    kept.delete(undefined);
    expect(kept.size).toBeGreaterThan(0);
    expect(kept.size * 32_768).toBeLessThanOrEqual(buffers + 32_768);
    expect(cache.get(keys.at(-1) ?? '')?.modRevision).toBe(29_999n);
  });
});
