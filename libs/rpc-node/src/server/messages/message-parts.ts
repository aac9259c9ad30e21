import { ScalarType, type DescField, type DescMessage } from '@bufbuild/protobuf';
import { BinaryReader, WireType } from '@bufbuild/protobuf/wire';

/**
 * Estimates the cost of parsing a binary message: counts fields (also unknown fields), list
 * elements and map entries, and text by its length. Two bytes can become an object of a hundred
 * bytes, so parsing 4 MiB can take seconds and 60 times the memory. Counting needs almost no memory
 * and stops at `limit`.
 * @param bytes - A message in the binary format. At malformed bytes the count ends; the parser
 *   reports the error.
 * @returns At most `limit + 1`.
 */
export function countBinaryParts(type: DescMessage, bytes: Uint8Array, limit: number): number {
  const counter = new PartCounter(bytes, limit);
  try {
    counter.countMessage(type, bytes.byteLength, 1);
  } catch {
    // Malformed: `parts` counts everything up to the error.
  }
  return Math.min(Math.ceil(counter.parts), limit + 1);
}

class PartCounter {
  /** Parts so far; a fraction, because text counts by its length. */
  parts = 0;
  private readonly reader: BinaryReader;

  constructor(
    bytes: Uint8Array,
    private readonly limit: number,
  ) {
    this.reader = new BinaryReader(bytes);
  }

  countMessage(desc: DescMessage, end: number, depth: number): void {
    const fields = getFields(desc);
    this.forEachField(end, depth, (number, wireType) => {
      const field = fields.get(number);
      if (wireType !== WireType.LengthDelimited || field === undefined) return false;
      this.countFieldValue(field, end, depth);
      return true;
    });
  }

  /** Counts the value of a length-delimited field. */
  private countFieldValue(field: DescField, outerEnd: number, depth: number): void {
    const length = this.reader.uint32();
    const end = Math.min(this.reader.pos + length, outerEnd);
    if (field.fieldKind === 'map') {
      this.parts += length / CHARACTERS_PER_PART; // mostly keys, and values that are text
      this.forEachField(end, depth + 1, (number, wireType) => {
        if (
          number !== ENTRY_VALUE ||
          wireType !== WireType.LengthDelimited ||
          field.message === undefined
        )
          return false;
        this.countMapValue(field.message, end, depth + 1);
        return true;
      });
    } else if (field.message !== undefined && depth < MAX_DEPTH)
      this.countMessage(field.message, end, depth + 1);
    else if (field.scalar === ScalarType.STRING) this.parts += length / CHARACTERS_PER_PART;
    else if (isPacked(field)) this.parts += length / PACKED_ELEMENTS_PER_PART;
    this.reader.pos = end;
  }

  private countMapValue(desc: DescMessage, outerEnd: number, depth: number): void {
    const end = Math.min(this.reader.uint32() + this.reader.pos, outerEnd);
    if (depth < MAX_DEPTH) this.countMessage(desc, end, depth + 1);
    this.reader.pos = end;
  }

  /**
   * Counts each field up to position `end`.
   * @param readField - Reads the value of a field, or returns false to skip the value.
   */
  private forEachField(
    end: number,
    depth: number,
    readField: (number: number, wireType: WireType) => boolean,
  ): void {
    while (this.reader.pos < end && this.parts <= this.limit) {
      const [number, wireType] = this.reader.tag();
      if (wireType === WireType.EndGroup) return;
      this.parts += 1;
      if (wireType === WireType.StartGroup) {
        if (depth >= MAX_DEPTH) throw new RangeError('groups are nested too deeply');
        this.forEachField(this.reader.len, depth + 1, () => false);
      } else if (!readField(number, wireType)) this.reader.skip(wireType, number);
    }
  }
}

/**
 * Counts members and elements of a JSON text at any depth, valid or not. A comma within a string
 * counts a quarter, because a field mask is one string that becomes many elements.
 * @returns At most `limit + 1`.
 */
export function countJsonParts(bytes: Uint8Array, limit: number): number {
  let parts = 0;
  let inText = false;
  for (let index = 0; index < bytes.length && parts <= limit; index += 1) {
    const byte = bytes[index];
    if (byte === QUOTE) inText = !inText;
    else if (inText) {
      if (byte === BACKSLASH) index += 1;
      else parts += byte === COMMA ? COMMA_IN_TEXT_PART : 1 / CHARACTERS_PER_PART;
    } else if (byte === COMMA || byte === COLON || byte === OPEN_LIST || byte === OPEN_OBJECT)
      parts += 1;
  }
  return Math.min(Math.ceil(parts), limit + 1);
}

const QUOTE = 0x22;
const BACKSLASH = 0x5c;
const COMMA = 0x2c;
const COLON = 0x3a;
const OPEN_LIST = 0x5b;
const OPEN_OBJECT = 0x7b;
/** Parts of a comma within a JSON string, which may be a field mask. */
const COMMA_IN_TEXT_PART = 0.25;

/** Depth limit of `@bufbuild/protobuf`, which refuses deeper messages. */
const MAX_DEPTH = 100;
/** Characters that count as one part: validation counts characters and matches patterns. */
const CHARACTERS_PER_PART = 32;
/** Bytes of packed numbers that count as one part: numbers cost little compared with objects. */
const PACKED_ELEMENTS_PER_PART = 16;
/** Field number of the value in a map entry; the key has number 1. */
const ENTRY_VALUE = 2;

function isPacked(field: DescField): boolean {
  if (field.fieldKind !== 'list') return false;
  return (
    field.listKind === 'enum' ||
    (field.listKind === 'scalar' && ![ScalarType.STRING, ScalarType.BYTES].includes(field.scalar))
  );
}

const fieldCache = new WeakMap<DescMessage, ReadonlyMap<number, DescField>>();

function getFields(desc: DescMessage): ReadonlyMap<number, DescField> {
  let fields = fieldCache.get(desc);
  if (fields === undefined) {
    fields = new Map(desc.fields.map((field) => [field.number, field]));
    fieldCache.set(desc, fields);
  }
  return fields;
}
