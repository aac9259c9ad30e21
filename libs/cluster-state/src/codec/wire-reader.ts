import { getTextEncoding } from '@bufbuild/protobuf/wire';
import { BigintCache } from './bigint-cache.js';
import { toWireType, type FieldPlan, type MessagePlan } from './message-plan.js';
import { TextCache } from './text-cache.js';
import { TimeCache } from './time-cache.js';

/** Thrown for bytes that the fast path does not read exactly as protobuf-es does. */
export const CANNOT_READ = new Error('the bytes need the general decoder');

type Fields = Record<string, unknown>;
type Time = Parameters<TimeCache['share']>[0];

const TWO_TO_32 = 2 ** 32;
const MAX_DEPTH = 100;
const EMPTY = new Uint8Array(0);

/**
 * Reads messages by their plans. Every method throws {@link CANNOT_READ} for bytes whose treatment
 * is left to protobuf-es: unknown fields, other wire types, repeated singular messages, and damage.
 */
export class WireReader {
  private bytes: Uint8Array = EMPTY;
  private view: DataView = new DataView(EMPTY.buffer);
  private at = 0;
  /** Upper half of the last number that `readVarint` read, unsigned. */
  private high = 0;
  private readonly texts = new TextCache();
  private readonly bigints = new BigintCache();
  private readonly times = new TimeCache();

  /**
   * Reads one message.
   * @param createEmpty - Creates the message, without what the bytes say. Default: by the plan.
   */
  read(plan: MessagePlan, bytes: Uint8Array, createEmpty?: () => object): object {
    this.bytes = bytes;
    this.at = 0;
    const empty = createEmpty === undefined ? createMessage(plan) : (createEmpty() as Fields);
    const message = this.readFields(plan, empty, bytes.length, 1);
    this.bytes = EMPTY; // does not keep the bytes in memory
    return message;
  }

  private readFields(plan: MessagePlan, message: Fields, end: number, depth: number): Fields {
    if (depth > MAX_DEPTH) throw CANNOT_READ;
    while (this.at < end) {
      const field = plan.byTag[this.readTag()];
      if (field === undefined) throw CANNOT_READ;
      switch (field.cardinality) {
        case 'implicit':
          message[field.name] = this.readValue(field, end);
          break;
        case 'explicit':
          if (field.message === undefined) message[field.name] = this.readValue(field, end);
          else if (message[field.name] !== undefined) throw CANNOT_READ;
          else message[field.name] = this.readNested(field.message, end, depth);
          break;
        case 'oneof':
          message[field.oneof] = this.readMember(field, message[field.oneof], end, depth);
          break;
        case 'list':
          addItem(message, field.name, this.readItem(field, end, depth));
          break;
        case 'packed':
          this.readPacked(field, message, end);
          break;
        case 'map':
          this.readEntry(field, message[field.name] as Fields, end, depth);
      }
    }
    if (this.at !== end) throw CANNOT_READ;
    return message;
  }

  private readMember(field: FieldPlan, before: unknown, end: number, depth: number): unknown {
    if (field.message !== undefined && (before as Fields)['case'] !== undefined) throw CANNOT_READ;
    return { case: field.name, value: this.readItem(field, end, depth) };
  }

  private readItem(field: FieldPlan, end: number, depth: number): unknown {
    return field.message === undefined
      ? this.readValue(field, end)
      : this.readNested(field.message, end, depth);
  }

  private readNested(plan: MessagePlan, end: number, depth: number): Fields {
    const size = this.readLength(end);
    const message = this.readFields(plan, createMessage(plan), this.at + size, depth + 1);
    return plan.isShared ? this.times.share(message as Fields & Time) : message;
  }

  private readPacked(field: FieldPlan, message: Fields, end: number): void {
    const size = this.readLength(end);
    const last = this.at + size;
    while (this.at < last) addItem(message, field.name, this.readValue(field, last));
    if (this.at !== last) throw CANNOT_READ;
  }

  private readEntry(field: FieldPlan, map: Fields, end: number, depth: number): void {
    const size = this.readLength(end);
    const last = this.at + size;
    if (this.readTag() !== (MAP_KEY_TAG | toWireType(field.mapKey))) throw CANNOT_READ;
    const key =
      field.mapKey === 'int32'
        ? String(this.readVarint(last) | 0)
        : this.readText(last, field.validatesUtf8, true);
    // Assignment creates no property of this name.
    if (key === '__proto__') throw CANNOT_READ;
    if (this.readTag() !== (MAP_VALUE_TAG | toWireType(field.kind))) throw CANNOT_READ;
    map[key] = this.readItem(field, last, depth);
    if (this.at !== last) throw CANNOT_READ;
  }

  private readValue({ kind, validatesUtf8, sharesText }: FieldPlan, end: number): unknown {
    switch (kind) {
      case 'string':
        return this.readText(end, validatesUtf8, sharesText);
      case 'bool':
        return this.readVarint(end) !== 0 || this.high !== 0;
      case 'int32':
        return this.readVarint(end) | 0;
      case 'uint32':
        return this.readVarint(end);
      case 'int64':
        return this.readBigint(end, true);
      case 'uint64':
        return this.readBigint(end, false);
      case 'double':
        return this.readDouble(end);
      case 'bytes': {
        const size = this.readLength(end);
        this.at += size;
        return this.bytes.subarray(this.at - size, this.at);
      }
      case 'message':
        throw CANNOT_READ;
    }
  }

  private readTag(): number {
    const first = this.bytes[this.at] ?? 0;
    this.at += 1;
    if (first < 0x80) return first;
    const second = this.bytes[this.at] ?? 0x80;
    this.at += 1;
    if (second > 0x7f) throw CANNOT_READ;
    return (first & 0x7f) | (second << 7);
  }

  /** @returns The length of what follows, which ends at or before `end`. */
  private readLength(end: number): number {
    const size = this.readVarint(end);
    if (this.high !== 0 || this.at + size > end) throw CANNOT_READ;
    return size;
  }

  /** @returns The lower 32 bits, unsigned; the upper ones are in `high`. */
  private readVarint(end: number): number {
    const first = this.bytes[this.at] ?? 0x80;
    if (first < 0x80) {
      if (this.at >= end) throw CANNOT_READ;
      this.at += 1;
      this.high = 0;
      return first;
    }
    return this.readLongVarint(end);
  }

  private readLongVarint(end: number): number {
    let low = 0;
    let high = 0;
    for (let shift = 0; shift < 70; shift += 7) {
      if (this.at >= end) throw CANNOT_READ;
      const byte = this.bytes[this.at++] ?? 0;
      const bits = byte & 0x7f;
      if (shift < 28) low |= bits << shift;
      else if (shift === 28) {
        low |= bits << 28;
        high = bits >>> 4;
      } else if (shift < 63) high |= bits << (shift - 32);
      else high |= (bits & 1) << 31;
      if (byte < 0x80) {
        this.high = high >>> 0;
        return low >>> 0;
      }
    }
    throw CANNOT_READ;
  }

  private readBigint(end: number, isSigned: boolean): bigint {
    const low = this.readVarint(end);
    const { high } = this;
    if (high < 0x20_0000) return this.bigints.get(high * TWO_TO_32 + low, low);
    const unsigned = (BigInt(high) << 32n) | BigInt(low);
    return isSigned ? BigInt.asIntN(64, unsigned) : unsigned;
  }

  private readDouble(end: number): number {
    if (this.at + 8 > end) throw CANNOT_READ;
    const { bytes } = this;
    if (this.view.buffer !== bytes.buffer || this.view.byteOffset !== bytes.byteOffset)
      this.view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    this.at += 8;
    return this.view.getFloat64(this.at - 8, true);
  }

  private readText(end: number, validatesUtf8: boolean, sharesText: boolean): string {
    const size = this.readLength(end);
    const start = this.at;
    this.at += size;
    if (size === 0) return '';
    const cached = this.texts.get(this.bytes, start, size, sharesText);
    if (cached !== undefined) return cached;
    try {
      return getTextEncoding().decodeUtf8(this.bytes.subarray(start, this.at), validatesUtf8);
    } catch {
      throw CANNOT_READ;
    }
  }
}

/** Field number of the key in an entry of a map, without a wire type. */
const MAP_KEY_TAG = 1 << 3;
/** Field number of the value in an entry of a map, without a wire type. */
const MAP_VALUE_TAG = 2 << 3;

/** Creates the message that protobuf-es creates before it sets fields, in the same order. */
function createMessage({ typeName, Message, zeros }: MessagePlan): Fields {
  const message = new Message(typeName);
  for (const { name, kind, constant } of zeros) {
    switch (kind) {
      case 'constant':
        message[name] = constant;
        break;
      case 'list':
        message[name] = [];
        break;
      case 'map':
        message[name] = {};
        break;
      case 'oneof':
        message[name] = { case: undefined };
        break;
      case 'bytes':
        message[name] = new Uint8Array(0);
    }
  }
  return message;
}

/** Adds to a list of a message. A list without items may be shared with other messages. */
function addItem(message: Fields, name: string, item: unknown): void {
  const items = message[name] as unknown[];
  // Most lists have one item; `push` would reserve space for sixteen more.
  if (items.length === 0) message[name] = [item];
  else items.push(item);
}
