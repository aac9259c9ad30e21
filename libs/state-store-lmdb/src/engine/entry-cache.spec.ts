import { EntryCache } from './entry-cache.js';
import { ReadEntry } from './table-reads.js';

const anEntry = (key: string, modRevision = 1n, bytes = 8): ReadEntry =>
  new ReadEntry(key, modRevision, undefined, new Uint8Array(bytes), Buffer.from(key), 0);

describe('EntryCache', () => {
  it('returns the newest entry of a key, and none after its deletion', () => {
    const cache = new EntryCache();
    cache.set(anEntry('a', 1n));
    for (let each = 0; each < 8_192; each += 1) cache.set(anEntry(`k${each}`));
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
    for (let each = 0; each < 40_000; each += 1) cache.set(anEntry(`k${each}`));
    const kept = Array.from({ length: 40_000 }, (_, each) => cache.get(`k${each}`));
    expect(kept.slice(-8_192)).not.toContain(undefined);
    expect(kept.filter((entry) => entry !== undefined).length).toBeLessThanOrEqual(16_384);
  });

  it('forgets an entry whose value has become large', () => {
    const cache = new EntryCache();
    cache.set(anEntry('a', 1n));
    cache.set(anEntry('a', 2n, 2_000));
    expect(cache.get('a')).toBeUndefined();
  });

  it('keeps no larger buffer that a value is a part of', () => {
    const cache = new EntryCache();
    const value = new Uint8Array(32_768).fill(7).subarray(100, 300);
    cache.set(new ReadEntry('a', 1n, undefined, value, Buffer.from('a'), 0));
    const kept = cache.get('a')?.value;
    expect(kept).toEqual(value);
    expect(kept?.buffer.byteLength).toBe(200);
  });
});
