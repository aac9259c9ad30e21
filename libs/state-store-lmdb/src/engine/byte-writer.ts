const MAX_SAFE = BigInt(Number.MAX_SAFE_INTEGER);
/** Longest text, in UTF-16 units, that is written unit by unit. */
const MAX_SHORT_TEXT = 64;

/**
 * Appends numbers, text and bytes to a growing buffer. Numbers are big-endian, so that their bytes
 * sort in the order of the numbers.
 */
export class ByteWriter {
  private buffer: Buffer;
  private length = 0;

  /** @param capacity - Initial bytes, 1 or more. */
  constructor(capacity: number) {
    this.buffer = Buffer.allocUnsafeSlow(capacity);
  }

  /** Bytes written so far. */
  get byteLength(): number {
    return this.length;
  }

  uint8(value: number): this {
    this.reserve(1);
    this.length = this.buffer.writeUInt8(value, this.length);
    return this;
  }

  uint16(value: number): this {
    this.reserve(2);
    this.length = this.buffer.writeUInt16BE(value, this.length);
    return this;
  }

  uint32(value: number): this {
    this.reserve(4);
    this.length = this.buffer.writeUInt32BE(value, this.length);
    return this;
  }

  uint64(value: bigint): this {
    this.reserve(8);
    // `Number` takes a fraction of the time of the arithmetic with BigInts.
    if (value < 0n || value > MAX_SAFE) {
      this.length = this.buffer.writeBigUInt64BE(value, this.length);
      return this;
    }
    const number = Number(value);
    this.length = this.buffer.writeUInt32BE(Math.floor(number / 2 ** 32), this.length);
    this.length = this.buffer.writeUInt32BE(number % 2 ** 32, this.length);
    return this;
  }

  float64(value: number): this {
    this.reserve(8);
    this.length = this.buffer.writeDoubleBE(value, this.length);
    return this;
  }

  bytes(value: Uint8Array): this {
    this.reserve(value.byteLength);
    this.buffer.set(value, this.length);
    this.length += value.byteLength;
    return this;
  }

  /** Writes UTF-8 text after its length in two bytes. */
  text(value: string): this {
    this.reserve(2 + 3 * value.length);
    const written =
      this.writeAscii(value, this.length + 2) ?? this.buffer.write(value, this.length + 2, 'utf8');
    this.uint16(written);
    this.length += written;
    return this;
  }

  /**
   * Writes short ASCII text, which most keys are, without a call of the runtime.
   * @returns The bytes; undefined for other text.
   */
  private writeAscii(value: string, start: number): number | undefined {
    if (value.length > MAX_SHORT_TEXT) return undefined;
    const { buffer } = this;
    for (let index = 0; index < value.length; index += 1) {
      const unit = value.charCodeAt(index);
      if (unit > 0x7f) return undefined;
      buffer[start + index] = unit;
    }
    return value.length;
  }

  /** Returns the written bytes without a copy. Valid until the next write or `clear`. */
  view(): Buffer {
    return this.buffer.subarray(0, this.length);
  }

  /** Removes all bytes and keeps the memory. */
  clear(): this {
    this.length = 0;
    return this;
  }

  /** Makes space for `count` more bytes. */
  private reserve(count: number): void {
    if (this.length + count <= this.buffer.length) return;
    const grown = Buffer.allocUnsafeSlow(Math.max(2 * this.buffer.length, this.length + count));
    this.buffer.copy(grown, 0, 0, this.length);
    this.buffer = grown;
  }
}
