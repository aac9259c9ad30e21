import { toWireType, type FieldPlan, type MessagePlan, type ValueKind } from './message-plan.js';

/** Thrown for a message that the fast path cannot write exactly as protobuf-es does. */
export const CANNOT_WRITE = new Error('the message needs the general encoder');

/** Thrown when the block is full. */
const NO_SPACE = new Error('the block is full');

type Fields = Readonly<Record<string, unknown>>;

const MAX_INT32 = 0x7fff_ffff;
const MIN_INT32 = -0x8000_0000;
const MAX_UINT32 = 0xffff_ffff;
const MAX_INT64 = 2n ** 63n - 1n;
const MIN_INT64 = -(2n ** 63n);
const MAX_UINT64 = 2n ** 64n - 1n;
/** Longest text that is written character by character, which is faster for short ASCII text. */
const MAX_SHORT_TEXT = 48;
/** Most bytes of a number with its tag. */
const MAX_NUMBER_BYTES = 16;
const MAX_DEPTH = 100;
/** Size of the memory that finished messages share. */
const BLOCK_BYTES = 32 * 1024;

/**
 * Writes messages by their plans into one growing buffer. Every method throws {@link CANNOT_WRITE}
 * for values whose treatment is left to protobuf-es: values of another type, out of range, and
 * unknown fields.
 */
export class WireWriter {
  /** Finished messages, then the message that is being written. */
  private buffer = Buffer.allocUnsafeSlow(BLOCK_BYTES);
  private start = 0;
  private at = 0;
  /** Bytes that the next block must have. */
  private needed = 0;
  private isExact = true;

  /**
   * Writes one message.
   * @param values - The values of its fields, in the order of the plan. Default: they are read from
   *   the message.
   * @returns The bytes, and whether reading these bytes gives an equal message: text with a lone
   *   surrogate or a leading byte order mark changes.
   */
  write(
    plan: MessagePlan,
    message: Fields,
    values?: readonly unknown[],
  ): { readonly bytes: Uint8Array; readonly isExact: boolean } {
    for (;;) {
      this.start = this.at;
      this.isExact = true;
      try {
        this.writeFields(plan, message, 1, values);
        const { start, at, isExact } = this;
        return { bytes: new Uint8Array(this.buffer.buffer, start, at - start), isExact };
      } catch (reason) {
        this.at = this.start;
        if (reason !== NO_SPACE) throw reason;
        this.startBlock();
      }
    }
  }

  private startBlock(): void {
    this.buffer = Buffer.allocUnsafeSlow(Math.max(BLOCK_BYTES, this.needed));
    this.at = 0;
  }

  private writeFields(
    plan: MessagePlan,
    message: Fields,
    depth: number,
    values?: readonly unknown[],
  ): void {
    if (depth > MAX_DEPTH) throw CANNOT_WRITE;
    if (message['$typeName'] !== plan.typeName) throw CANNOT_WRITE;
    if (message['$unknown'] !== undefined) throw CANNOT_WRITE;
    const { fields } = plan;
    for (let index = 0; index < fields.length; index += 1) {
      const field = fields[index] as FieldPlan;
      const value = values === undefined ? message[field.name] : values[index];
      switch (field.cardinality) {
        case 'implicit':
          this.writeImplicit(field, value);
          break;
        case 'explicit':
          if (value !== undefined) this.writeField(field, value, depth);
          break;
        case 'oneof': {
          const member = message[field.oneof] as Fields | undefined;
          if (member === undefined) throw CANNOT_WRITE;
          if (member['case'] === field.name) this.writeField(field, member['value'], depth);
          break;
        }
        case 'list':
          if (!Array.isArray(value)) throw CANNOT_WRITE;
          for (let item = 0; item < value.length; item += 1)
            this.writeField(field, (value as unknown[])[item], depth);
          break;
        case 'packed':
          this.writePacked(field, value);
          break;
        case 'map':
          this.writeMap(field, value, depth);
      }
    }
  }

  /** Writes a field unless it has the zero value of its kind. */
  private writeImplicit(field: FieldPlan, value: unknown): void {
    switch (field.kind) {
      case 'string':
        if (value === '') return;
        break;
      case 'bool':
        if (value === false) return;
        break;
      case 'int64':
      case 'uint64':
        if (value === 0n) return;
        break;
      case 'bytes':
        if (value instanceof Uint8Array && value.byteLength === 0) return;
        break;
      default:
        // Negative zero is a value: only doubles have it, and other numbers refuse it.
        if (Object.is(value, 0)) return;
    }
    this.writeField(field, value, 0);
  }

  private writeField(field: FieldPlan, value: unknown, depth: number): void {
    this.reserve(MAX_NUMBER_BYTES);
    this.writeTag(field.tag);
    if (field.message === undefined) this.writeValue(field.kind, value);
    else this.writeMessage(field.message, value, depth);
  }

  private writeTag(tag: number): void {
    if (tag < 0x80) {
      this.buffer[this.at++] = tag;
      return;
    }
    this.buffer[this.at++] = (tag & 0x7f) | 0x80;
    this.buffer[this.at++] = tag >>> 7;
  }

  /** Writes a value without a tag. Needs {@link MAX_NUMBER_BYTES} of reserved space. */
  private writeValue(kind: ValueKind, value: unknown): void {
    switch (kind) {
      case 'string':
        if (typeof value !== 'string') throw CANNOT_WRITE;
        this.writeText(value);
        return;
      case 'bool':
        if (typeof value !== 'boolean') throw CANNOT_WRITE;
        this.buffer[this.at++] = value ? 1 : 0;
        return;
      case 'int32':
        this.writeInt32(checkInteger(value, MIN_INT32, MAX_INT32));
        return;
      case 'uint32':
        this.writeVarint32(checkInteger(value, 0, MAX_UINT32));
        return;
      case 'int64':
        if (typeof value !== 'bigint' || value > MAX_INT64 || value < MIN_INT64) throw CANNOT_WRITE;
        this.writeVarint64(value);
        return;
      case 'uint64':
        if (typeof value !== 'bigint' || value > MAX_UINT64 || value < 0n) throw CANNOT_WRITE;
        this.writeVarint64(value);
        return;
      case 'double':
        if (typeof value !== 'number') throw CANNOT_WRITE;
        this.at = this.buffer.writeDoubleLE(value, this.at);
        return;
      case 'bytes':
        if (!(value instanceof Uint8Array)) throw CANNOT_WRITE;
        this.writeVarint32(value.byteLength);
        this.reserve(value.byteLength);
        this.buffer.set(value, this.at);
        this.at += value.byteLength;
        return;
      case 'message':
        throw CANNOT_WRITE;
    }
  }

  /** Negative numbers are written as 64 bits. */
  private writeInt32(value: number): void {
    if (value >= 0) this.writeVarint32(value);
    else this.writeVarint64(BigInt(value));
  }

  private writeVarint32(value: number): void {
    let rest = value;
    while (rest > 0x7f) {
      this.buffer[this.at++] = (rest & 0x7f) | 0x80;
      rest >>>= 7;
    }
    this.buffer[this.at++] = rest;
  }

  private writeVarint64(value: bigint): void {
    const number = Number(value);
    if (number >= 0 && number <= Number.MAX_SAFE_INTEGER) {
      let rest = number;
      while (rest > MAX_INT32) {
        this.buffer[this.at++] = (rest % 0x80) | 0x80;
        rest = Math.floor(rest / 0x80);
      }
      this.writeVarint32(rest);
      return;
    }
    let rest = BigInt.asUintN(64, value);
    while (rest > 0x7fn) {
      this.buffer[this.at++] = Number(rest & 0x7fn) | 0x80;
      rest >>= 7n;
    }
    this.buffer[this.at++] = Number(rest);
  }

  private writeText(text: string): void {
    const { length } = text;
    this.reserve(3 * length + MAX_NUMBER_BYTES);
    if (length <= MAX_SHORT_TEXT && this.writeAscii(text, length)) return;
    const size = Buffer.byteLength(text);
    if (size !== length && !isExactText(text)) this.isExact = false;
    this.writeVarint32(size);
    this.at += this.buffer.write(text, this.at, size, 'utf8');
  }

  /** @returns False, and writes nothing, when the text is not ASCII. */
  private writeAscii(text: string, length: number): boolean {
    const { buffer, at } = this;
    for (let index = 0; index < length; index += 1) {
      const unit = text.charCodeAt(index);
      if (unit > 0x7f) return false;
      buffer[at + 1 + index] = unit;
    }
    buffer[at] = length;
    this.at = at + 1 + length;
    return true;
  }

  private writeMessage(plan: MessagePlan, value: unknown, depth: number): void {
    if (typeof value !== 'object' || value === null) throw CANNOT_WRITE;
    const start = this.startLength();
    this.writeFields(plan, value as Fields, depth + 1);
    this.endLength(start);
  }

  private writePacked({ tag, kind }: FieldPlan, values: unknown): void {
    if (!Array.isArray(values)) throw CANNOT_WRITE;
    if (values.length === 0) return;
    this.reserve(MAX_NUMBER_BYTES);
    this.writeTag(tag);
    const start = this.startLength();
    for (const value of values as unknown[]) {
      this.reserve(MAX_NUMBER_BYTES);
      this.writeValue(kind, value);
    }
    this.endLength(start);
  }

  private writeMap({ tag, kind, mapKey, message }: FieldPlan, value: unknown, depth: number): void {
    if (typeof value !== 'object' || value === null) throw CANNOT_WRITE;
    for (const key of Object.keys(value)) {
      this.reserve(MAX_NUMBER_BYTES);
      this.writeTag(tag);
      const start = this.startLength();
      this.writeTag(MAP_KEY_TAG | toWireType(mapKey));
      // A decoder assigns this key, which creates no property.
      if (key === '__proto__') this.isExact = false;
      this.writeValue(mapKey, mapKey === 'int32' ? Number(key) : key);
      this.reserve(MAX_NUMBER_BYTES);
      this.writeTag(MAP_VALUE_TAG | toWireType(kind));
      const item = (value as Fields)[key];
      if (message === undefined) this.writeValue(kind, item);
      else this.writeMessage(message, item, depth);
      this.endLength(start);
    }
  }

  /** Leaves one byte for a length. */
  private startLength(): number {
    this.at += 1;
    return this.at;
  }

  /** Writes the length of what follows `start`; moves it when the length needs more bytes. */
  private endLength(start: number): void {
    const size = this.at - start;
    if (size < 0x80) {
      this.buffer[start - 1] = size;
      return;
    }
    this.reserve(MAX_NUMBER_BYTES);
    const end = this.at;
    this.at = start - 1;
    const moved = countVarintBytes(size) - 1;
    this.buffer.copyWithin(start + moved, start, end);
    this.writeVarint32(size);
    this.at = end + moved;
  }

  /** Checks that `count` more bytes fit into the block. */
  private reserve(count: number): void {
    if (this.at + count <= this.buffer.length) return;
    this.needed = 2 * (this.at - this.start + count);
    throw NO_SPACE;
  }
}

/** Field number of the key in an entry of a map, without a wire type. */
const MAP_KEY_TAG = 1 << 3;
/** Field number of the value in an entry of a map, without a wire type. */
const MAP_VALUE_TAG = 2 << 3;

function checkInteger(value: unknown, min: number, max: number): number {
  if (!Number.isInteger(value) || Object.is(value, -0)) throw CANNOT_WRITE;
  const integer = value as number;
  if (integer < min || integer > max) throw CANNOT_WRITE;
  return integer;
}

function countVarintBytes(value: number): number {
  let count = 1;
  for (let rest = value >>> 7; rest > 0; rest >>>= 7) count += 1;
  return count;
}

/** Decoders drop a leading byte order mark, and lone surrogates have no UTF-8 form. */
function isExactText(text: string): boolean {
  return !text.startsWith('\uFEFF') && !/\p{Surrogate}/u.test(text);
}
