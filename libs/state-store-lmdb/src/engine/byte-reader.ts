/** Upper halves below this one belong to safe integers. */
export const MAX_SAFE_HIGH = 2 ** 21;

/**
 * Reads values in the order in which a `ByteWriter` wrote them. All methods throw a RangeError when
 * the record ends too early.
 */
export class ByteReader {
  private offset = 0;

  constructor(private readonly buffer: Buffer) {}

  /** True when all bytes were read. */
  get atEnd(): boolean {
    return this.offset >= this.buffer.length;
  }

  uint8(): number {
    return this.buffer.readUInt8(this.skip(1));
  }

  uint16(): number {
    return this.buffer.readUInt16BE(this.skip(2));
  }

  uint32(): number {
    return this.buffer.readUInt32BE(this.skip(4));
  }

  uint64(): bigint {
    const start = this.skip(8);
    const high = this.buffer.readUInt32BE(start);
    // `BigInt` of a number takes a fraction of the time of the arithmetic with BigInts.
    return high < MAX_SAFE_HIGH
      ? BigInt(high * 2 ** 32 + this.buffer.readUInt32BE(start + 4))
      : this.buffer.readBigUInt64BE(start);
  }

  float64(): number {
    return this.buffer.readDoubleBE(this.skip(8));
  }

  /** Reads UTF-8 text after its length in two bytes. */
  text(): string {
    const length = this.uint16();
    if (length === 0) return '';
    const start = this.skip(length);
    return this.buffer.toString('utf8', start, start + length);
  }

  /** Moves past UTF-8 text. */
  skipText(): this {
    this.skip(this.uint16());
    return this;
  }

  /** Moves past the next `length` bytes. */
  skipBytes(length: number): this {
    this.skip(length);
    return this;
  }

  /** Copies the next `length` bytes. */
  bytes(length: number): Uint8Array {
    const start = this.skip(length);
    return new Uint8Array(this.buffer.subarray(start, start + length));
  }

  /** Returns all remaining bytes without a copy. */
  rest(): Uint8Array {
    const start = this.skip(this.buffer.length - this.offset);
    const { buffer, byteOffset, length } = this.buffer;
    return new Uint8Array(buffer, byteOffset + start, length - start);
  }

  /** Moves past `count` bytes and returns their offset. */
  private skip(count: number): number {
    const start = this.offset;
    if (start + count > this.buffer.length)
      throw new RangeError(`record ends at byte ${this.buffer.length}, ${start + count} needed`);
    this.offset = start + count;
    return start;
  }
}
