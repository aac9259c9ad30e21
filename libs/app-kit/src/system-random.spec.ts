import { systemRandom } from './index.js';

describe('systemRandom', () => {
  it('returns numbers in [0, 1), some of them in each tenth of the range', () => {
    const values = Array.from({ length: 2_000 }, () => systemRandom.next());
    expect(values.every((value) => value >= 0 && value < 1)).toBe(true);
    expect(new Set(values.map((value) => Math.floor(value * 10))).size).toBe(10);
  });

  it('returns the requested number of new random bytes in a buffer of exactly that size', () => {
    expect(systemRandom.bytes(0)).toHaveLength(0);
    const bytes = systemRandom.bytes(32);
    expect(bytes).toHaveLength(32);
    expect(bytes).not.toEqual(systemRandom.bytes(32));
    expect(Object.getPrototypeOf(bytes)).toBe(Uint8Array.prototype);
    expect(bytes.buffer.byteLength).toBe(32);
  });
});
