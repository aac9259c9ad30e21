const MAX_SAFE = BigInt(Number.MAX_SAFE_INTEGER);
/** Longest text, in UTF-16 units, that is written unit by unit. */
const MAX_SHORT_TEXT = 64;
const TWO_TO_32 = 2 ** 32;
/** Longest view that a writer keeps to return it again: that of a usual record, bytes. */
const MAX_KEPT_VIEW = 1_024;

/**
 * Appends numbers, text and bytes to a growing buffer. Numbers are big-endian, so that their bytes
 * sort in the order of the numbers.
 */
export class ByteWriter {
  private buffer: Buffer;
  private length = 0;
  /** Views of the beginning of the buffer by their length. */
  private views: (Buffer | undefined)[] = [];

  /** @param capacity - Initial bytes, 1 or more. */
  constructor(capacity: number) {
    this.buffer = Buffer.allocUnsafeSlow(capacity);
  }

  /** Bytes written so far. */
  get byteLength(): number {
    return this.length;
  }

  /** @param value - An integer from 0 to 2^8 - 1. */
  uint8(value: number): this {
    this.reserve(1);
    this.buffer[this.length++] = value;
    return this;
  }

  uint16(value: number): this {
    this.reserve(2);
    this.length = this.buffer.writeUInt16BE(value, this.length);
    return this;
  }

  /** @param value - An integer from 0 to 2^32 - 1. */
  uint32(value: number): this {
    this.reserve(4);
    this.putUint32(value);
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
    this.putUint32(Math.floor(number / TWO_TO_32));
    this.putUint32(number >>> 0);
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
    const written = this.writeText(value, this.length + 2);
    this.uint16(written);
    this.length += written;
    return this;
  }

  /** Writes UTF-8 text without its length. */
  rawText(value: string): this {
    this.reserve(3 * value.length);
    this.length += this.writeText(value, this.length);
    return this;
  }

  /** Writes UTF-8 text. @returns The number of bytes written. */
  private writeText(value: string, start: number): number {
    return this.writeAscii(value, start) ?? this.buffer.write(value, start, 'utf8');
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
    const { length } = this;
    if (length > MAX_KEPT_VIEW) return this.buffer.subarray(0, length);
    return (this.views[length] ??= this.buffer.subarray(0, length));
  }

  /** Writes an integer into reserved space. */
  private putUint32(value: number): void {
    const { buffer, length } = this;
    buffer[length] = value >>> 24;
    buffer[length + 1] = value >>> 16;
    buffer[length + 2] = value >>> 8;
    buffer[length + 3] = value;
    this.length = length + 4;
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
    this.views = [];
  }
}
