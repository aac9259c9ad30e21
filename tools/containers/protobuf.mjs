// The protobuf wire format, as far as cri.mjs needs it: strings, numbers up to 2^53, booleans,
// messages, and lists of these. A schema is `{ name: [number, type, 'repeated'?] }`; a type is
// 'string', 'number', 'bool' or another schema. See protobuf.dev/programming-guides/encoding.

/** Wire types. */
const VARINT = 0;
const FIXED64 = 1;
const BYTES = 2;
const FIXED32 = 5;

/**
 * Encodes a message.
 * @throws TypeError for a field that is not in the schema.
 */
export function encode(schema, message) {
  const parts = [];
  for (const [name, value] of Object.entries(message)) {
    if (schema[name] === undefined) throw new TypeError(`no field ${name} in the schema`);
    const [number, type] = schema[name];
    for (const item of Array.isArray(value) ? value : [value])
      parts.push(encodeField(number, type, item));
  }
  return Buffer.concat(parts);
}

function encodeField(number, type, value) {
  if (type === 'number' || type === 'bool')
    return Buffer.from([...varint(number * 8 + VARINT), ...varint(Number(value))]);
  const content = type === 'string' ? Buffer.from(value) : encode(type, value);
  return Buffer.concat([
    Buffer.from([...varint(number * 8 + BYTES), ...varint(content.length)]),
    content,
  ]);
}

function varint(value) {
  const bytes = [];
  for (let rest = value; ; rest = Math.floor(rest / 128)) {
    if (rest < 128) return [...bytes, rest];
    bytes.push((rest % 128) + 128);
  }
}

/**
 * Decodes a message. Absent lists are empty; absent strings, numbers and booleans have their
 * default value; absent messages are undefined. Fields that are not in the schema are skipped.
 * @throws TypeError for malformed bytes.
 */
export function decode(schema, bytes) {
  const byNumber = new Map(
    Object.entries(schema).map(([name, [number, ...rest]]) => [number, [name, ...rest]]),
  );
  const message = Object.fromEntries(
    Object.entries(schema).map(([name, [, type, list]]) => [name, getDefault(type, list)]),
  );
  const reader = { bytes, offset: 0 };
  while (reader.offset < bytes.length) {
    const tag = readVarint(reader);
    const value = readValue(reader, tag % 8);
    const [name, type, list] = byNumber.get(Math.floor(tag / 8)) ?? [];
    if (name === undefined) continue;
    if (list === 'repeated') message[name].push(convert(type, value));
    else message[name] = convert(type, value);
  }
  return message;
}

/** Returns the value of an absent field. */
function getDefault(type, list) {
  if (list === 'repeated') return [];
  return { string: '', number: 0, bool: false }[type];
}

function convert(type, value) {
  if (type === 'string') return value.toString();
  if (type === 'bool') return value !== 0;
  return type === 'number' ? value : decode(type, value);
}

function readValue(reader, wireType) {
  if (wireType === VARINT) return readVarint(reader);
  const length = wireType === BYTES ? readVarint(reader) : { [FIXED64]: 8, [FIXED32]: 4 }[wireType];
  if (length === undefined || reader.offset + length > reader.bytes.length)
    throw new TypeError('malformed protobuf message');
  reader.offset += length;
  return reader.bytes.subarray(reader.offset - length, reader.offset);
}

/**
 * Reads a varint, exact up to 2^53. Larger values, such as times in nanoseconds, are never used.
 */
function readVarint(reader) {
  for (let value = 0, scale = 1; ; scale *= 128) {
    const byte = reader.bytes[reader.offset++];
    if (byte === undefined) throw new TypeError('malformed protobuf message');
    value += (byte % 128) * scale;
    if (byte < 128) return value;
  }
}
