import { EntryCache } from './entry-cache.js';
import { ReadEntry } from './table-reads.js';

const anEntry = (key: string, modRevision = 1n, bytes = 8): ReadEntry =>
  new ReadEntry(key, modRevision, undefined, new Uint8Array(bytes), 0);

describe('EntryCache', () => {
  it('returns the newest entry of a key, and none after its deletion', () => {
    const cache = new EntryCache();
    cache.set(anEntry('a', 1n));
    for (let each = 0; each < 16_384; each += 1) cache.set(anEntry(`k${each}`));
    cache.set(anEntry('a', 2n));
    expect(cache.get('a')?.modRevision).toBe(2n);
    cache.delete('a');
    expect(cache.get('a')).toBeUndefined();
    cache.set(anEntry('b'));
    cache.clear();
    expect(cache.get('b')).toBeUndefined();
  });

  it('keeps the newest entries, in bounded memory', () => {
    const cache = new EntryCache();
    for (let each = 0; each < 80_000; each += 1) cache.set(anEntry(`k${each}`));
    const kept = Array.from({ length: 80_000 }, (_, each) => cache.get(`k${each}`));
    expect(kept.slice(-16_384)).not.toContain(undefined);
    expect(kept.filter((entry) => entry !== undefined).length).toBeLessThanOrEqual(32_768);
  });

  it('forgets an entry whose value has become large', () => {
    const cache = new EntryCache();
    cache.set(anEntry('a', 1n));
    cache.set(anEntry('a', 2n, 2_000));
    expect(cache.get('a')).toBeUndefined();
  });

  it('copies a value that is a part of a buffer larger than those of encoders', () => {
    const cache = new EntryCache();
    const value = new Uint8Array(65_536).fill(7).subarray(100, 300);
    cache.set(new ReadEntry('a', 1n, undefined, value, 0));
    const kept = cache.get('a')?.value;
    expect(kept).toEqual(value);
    expect(kept?.buffer.byteLength).toBe(200);
  });

  it.each([
    { name: 'each value has a buffer of its own', shared: 1 },
    { name: 'a buffer has the values of many entries', shared: 150 },
  ])('keeps at most 16 MiB of the buffers that values are parts of when $name', ({ shared }) => {
    const cache = new EntryCache();
    let buffer = new Uint8Array(32_768);
    const keys = Array.from({ length: 30_000 }, (_, each) => `k${each % 20_000}`);
    for (const [index, key] of keys.entries()) {
      if (index % shared === 0) buffer = new Uint8Array(32_768);
      const value = buffer.subarray((index % shared) * 200, (index % shared) * 200 + 200);
      cache.set(new ReadEntry(key, BigInt(index), undefined, value, 0));
    }
    const buffers = new Set(keys.map((key) => cache.get(key)?.value.buffer));
    buffers.delete(undefined);
    expect(buffers.size).toBeGreaterThan(0);
    expect(buffers.size * 32_768).toBeLessThanOrEqual(16 * 1024 * 1024 + 32_768);
    expect(cache.get(keys.at(-1) ?? '')?.modRevision).toBe(29_999n);
  });
});
