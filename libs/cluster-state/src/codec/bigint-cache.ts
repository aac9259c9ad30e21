/** Number of kept values; a power of 2. */
const SLOTS = 1_024;

/**
 * Converts numbers to bigints, each of which is an object of 24 bytes, and shares equal ones: many
 * records have the same seconds, sequence numbers and revisions. Keeps the last value of each slot.
 */
export class BigintCache {
  private readonly values = new Float64Array(SLOTS);
  private readonly bigints: bigint[] = new Array<bigint>(SLOTS).fill(0n);

  /**
   * @param value - An integer from 0 to 2^53 - 1.
   * @param low - Its lower 32 bits.
   */
  get(value: number, low: number): bigint {
    const slot = low & (SLOTS - 1);
    if (this.values[slot] === value) return this.bigints[slot] ?? 0n;
    const created = BigInt(value);
    this.values[slot] = value;
    this.bigints[slot] = created;
    return created;
  }
}
