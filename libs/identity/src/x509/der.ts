import { CloudlessError, assert } from '@cloudless/base';

/** One value of DER: tag, content, and the bytes of both. */
export interface DerValue {
  /** The identifier byte: class, constructed bit and number; multi-byte tags are refused. */
  readonly tag: number;
  readonly content: Uint8Array;
  /** Identifier, length and content. */
  readonly bytes: Uint8Array;
}

/** Identifier bytes (X.690, section 8.1.2). */
export const DerTag = {
  boolean: 0x01,
  integer: 0x02,
  bitString: 0x03,
  octetString: 0x04,
  oid: 0x06,
  utcTime: 0x17,
  generalizedTime: 0x18,
  sequence: 0x30,
  context0: 0xa0,
  context3: 0xa3,
} as const;

/**
 * Reads the values of one level of DER. Unlike BER, only one encoding of each length is valid, so
 * that two readers never disagree about a certificate. Content is not read until a caller asks, and
 * nothing recurses, so the depth of the input does not matter.
 *
 * @see ITU-T X.690, sections 8 and 10
 */
export class DerReader {
  private offset = 0;

  constructor(
    private readonly input: Uint8Array,
    /** What is read, for errors: `the certificate`. */
    private readonly what: string,
  ) {}

  get atEnd(): boolean {
    return this.offset === this.input.length;
  }

  /**
   * Reads the next value.
   * @throws {@link CloudlessError} of reason CERTIFICATE_INVALID.
   */
  read(): DerValue {
    const start = this.offset;
    const tag = this.readByte();
    if ((tag & 0x1f) === 0x1f) throw this.malformed();
    const length = this.readLength();
    if (length > this.input.length - this.offset) throw this.malformed();
    const content = this.input.subarray(this.offset, this.offset + length);
    this.offset += length;
    return { tag, content, bytes: this.input.subarray(start, this.offset) };
  }

  /** Reads the next value, which must have a tag. */
  expect(tag: number): DerValue {
    const value = this.read();
    if (value.tag !== tag) throw this.malformed();
    return value;
  }

  /** Reads the next value only when the value has a tag. */
  readOptional(tag: number): DerValue | undefined {
    return this.input[this.offset] === tag ? this.read() : undefined;
  }

  /** Reads the next value, which must have a tag, and returns a reader of the content. */
  enter(tag: number): DerReader {
    return new DerReader(this.expect(tag).content, this.what);
  }

  /** Refuses bytes after the last value. */
  expectEnd(): void {
    if (!this.atEnd) throw this.malformed();
  }

  /** Returns the error of a value that is not valid. */
  malformed(): CloudlessError {
    return new CloudlessError('CERTIFICATE_INVALID', `${this.what} is not valid DER`);
  }

  private readByte(): number {
    const byte = this.input[this.offset];
    if (byte === undefined) throw this.malformed();
    this.offset += 1;
    return byte;
  }

  private readLength(): number {
    const first = this.readByte();
    if (first < 0x80) return first;
    const byteCount = first & 0x7f;
    // 0x80 is the indefinite length of BER. Inputs are far smaller than 16 MiB.
    if (byteCount === 0 || byteCount > 3) throw this.malformed();
    let length = 0;
    for (let index = 0; index < byteCount; index += 1) length = length * 256 + this.readByte();
    if (length < 0x80 || length < 256 ** (byteCount - 1)) throw this.malformed();
    return length;
  }
}

/** Returns the bytes of a BIT STRING whose number of bits is a multiple of 8. */
export function readBitStringBytes(value: DerValue, reader: DerReader): Uint8Array {
  if (value.content[0] !== 0 || value.content.length < 2) throw reader.malformed();
  return value.content.subarray(1);
}

/** Encodes one value: tag, length, and the parts one after the other. Less than 64 KiB. */
export function encodeDer(tag: number, ...parts: readonly Uint8Array[]): Uint8Array {
  const content = Buffer.concat(parts);
  const { length } = content;
  assert(length < 0x1_0000, 'a DER value has less than 64 KiB');
  const lengthBytes =
    length < 0x80 ? [length] : length < 0x100 ? [0x81, length] : [0x82, length >> 8, length & 0xff];
  return Uint8Array.from([tag, ...lengthBytes, ...content]);
}
