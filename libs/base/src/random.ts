/** Source of randomness. A seeded source makes a run repeatable. */
export interface Random {
  /** Returns a number, uniform in [0, 1). */
  next(): number;
  /** Returns `count` random bytes; in production from a cryptographic source. */
  bytes(count: number): Uint8Array;
}

/**
 * Creates a repeatable source for tests and simulation (xoshiro128**, state filled by splitmix32).
 * @param seed - Any whole number. Equal seeds give equal sequences.
 * @see Blackman and Vigna, "Scrambled Linear Pseudorandom Number Generators", 2021
 */
export function createSeededRandom(seed: number): Random {
  let fill = seed | 0;
  const nextSplitmix = (): number => {
    fill = (fill + 0x9e3779b9) | 0;
    let z = fill ^ (fill >>> 16);
    z = Math.imul(z, 0x21f0aaad);
    z ^= z >>> 15;
    z = Math.imul(z, 0x735a2d97);
    return (z ^ (z >>> 15)) >>> 0;
  };
  let a = nextSplitmix();
  let b = nextSplitmix();
  let c = nextSplitmix();
  let d = nextSplitmix();
  const nextUint32 = (): number => {
    const rotated = Math.imul(b, 5);
    const result = Math.imul((rotated << 7) | (rotated >>> 25), 9) >>> 0;
    const t = b << 9;
    c ^= a;
    d ^= b;
    b ^= c;
    a ^= d;
    c ^= t;
    d = (d << 11) | (d >>> 21);
    return result;
  };
  return {
    next: () => nextUint32() / 0x1_0000_0000,
    bytes: (count) => Uint8Array.from({ length: count }, () => nextUint32() & 0xff),
  };
}
