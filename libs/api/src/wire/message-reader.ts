import { BinaryReader } from '@bufbuild/protobuf/wire';

/** Most bytes of a varint that {@link MessageReader} reads: 49 bits, which a number can express. */
const MAX_VARINT_BYTES = 7;

/**
 * Says that {@link MessageReader} does not read the message; the caller does not show the error.
 * One object, because the stack of an error costs more than the message.
 */
const UNSUPPORTED = new Error('not read without reflection');

/**
 * Reads the fields of an encoded message one by one, for the few hot messages whose generic
 * decoding is too slow. Supports what such messages contain, and throws at everything else,
 * malformed bytes included. The caller then decodes the message by `fromBinary`, which may succeed
 * or describe the error. Each use needs a test that compares with `fromBinary`.
 */
export class MessageReader {
  private readonly bytes: Buffer;
  private position: number;
  private limit: number;

  /** @param start - Index of the first byte of the message, which ends with `bytes`. */
  constructor(bytes: Uint8Array, start: number) {
    this.bytes = Buffer.isBuffer(bytes)
      ? bytes
      : Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    this.position = start;
    this.limit = bytes.byteLength;
  }

  /** True at the end of the message, or of the message field that {@link message} is reading. */
  get isAtEnd(): boolean {
    return this.position === this.limit;
  }

  /** Reads number and wire type of a field as they are encoded: at most two bytes. */
  tag(): number {
    const start = this.position;
    const tag = this.varint();
    if (this.position - start > 2) throw UNSUPPORTED;
    return tag;
  }

  /** Reads a value of type int32 or enum. */
  int32(): number {
    return this.varint() | 0;
  }

  bool(): boolean {
    return this.varint() !== 0;
  }

  int64(): bigint {
    return BigInt(this.varint());
  }

  string(): string {
    const lengthAt = this.position;
    const length = this.varint();
    const start = this.position;
    const end = start + length;
    if (end > this.limit) throw UNSUPPORTED;
    this.position = end;
    const { bytes } = this;
    for (let at = start; at < end; at += 1)
      if ((bytes[at] as number) > 0x7f) return readUtf8(bytes, lengthAt);
    return bytes.toString('latin1', start, end);
  }

  /**
   * Reads a message field.
   * @param read - Reads all fields of the message: {@link isAtEnd} refers to its end.
   * @param earlier - The value that the field has already. `fromBinary` would merge both messages.
   */
  message<Value>(read: (reader: this) => Value, earlier?: Value): Value {
    if (earlier !== undefined) throw UNSUPPORTED;
    const length = this.varint();
    const end = this.position + length;
    const outerLimit = this.limit;
    if (end > outerLimit) throw UNSUPPORTED;
    this.limit = end;
    const value = read(this);
    this.limit = outerLimit;
    return value;
  }

  /** Refuses a field that is unknown, or that has another wire type. */
  refuseField(): never {
    throw UNSUPPORTED;
  }

  private varint(): number {
    const { bytes, limit } = this;
    let at = this.position;
    let value = 0;
    let unit = 1;
    const last = Math.min(limit, at + MAX_VARINT_BYTES);
    while (at < last) {
      const byte = bytes[at] as number;
      at += 1;
      value += (byte & 0x7f) * unit;
      if (byte < 0x80) {
        this.position = at;
        return value;
      }
      unit *= 128;
    }
    throw UNSUPPORTED;
  }
}

/** @throws Error when the bytes are not valid UTF-8. */
function readUtf8(bytes: Uint8Array, lengthAt: number): string {
  const reader = new BinaryReader(bytes);
  reader.pos = lengthAt;
  return reader.string(/* strict */ true);
}
