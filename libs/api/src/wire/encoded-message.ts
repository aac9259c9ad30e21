import { create, type DescMessage, type Message, type MessageShape } from '@bufbuild/protobuf';
import { BinaryReader, WireType } from '@bufbuild/protobuf/wire';

/**
 * Creates a message that stands for bytes that are encoded already: `toBinary` returns exactly these
 * bytes, after the fields that the caller sets on the result. All fields of the result are empty,
 * so its JSON is empty too: use {@link isBinaryCall} to find out which encoding a call needs.
 *
 * Connect encodes a response with `toBinary` of its schema and has no place for another encoder
 * (`createMethodSerializationLookup` in `@connectrpc/connect/protocol/serialization.js`). But
 * `toBinary` writes the fields in `$unknown` as they are, so that fields of a newer version survive;
 * this function puts all bytes there, behind the tag of their first field.
 * @param bytes - Encoded fields of the message.
 */
export function createEncodedMessage<Desc extends DescMessage>(
  schema: Desc,
  bytes: Uint8Array,
): MessageShape<Desc> {
  const message = create(schema);
  setEncodedFields(message, bytes);
  return message;
}

/**
 * Gives a message further fields that are encoded already, as {@link createEncodedMessage} does.
 * Replaces fields of a newer version that the message has.
 * @param bytes - Encoded fields of the message; empty changes nothing.
 */
export function setEncodedFields(message: Message, bytes: Uint8Array): void {
  if (bytes.byteLength === 0) return;
  const reader = new BinaryReader(bytes);
  const [no, wireType] = reader.tag();
  message.$unknown = [{ no, wireType, data: bytes.subarray(reader.pos) }];
}

/**
 * Creates a message of which one message field, or all elements of a repeated one, are encoded
 * already, as {@link createEncodedMessage} does.
 * @param field - Number of the field.
 * @param elements - The encoded messages, each behind its length as a varint.
 */
export function createWithEncodedField<Desc extends DescMessage>(
  schema: Desc,
  field: number,
  elements: readonly Uint8Array[],
): MessageShape<Desc> {
  const message = create(schema);
  message.$unknown = elements.map((data) => ({
    no: field,
    wireType: WireType.LengthDelimited,
    data,
  }));
  return message;
}

/** Returns a message without the length that is before it as a varint. */
export function skipLength(bytes: Uint8Array): Uint8Array {
  let start = 0;
  while ((bytes[start] ?? 0) > 0x7f) start += 1;
  return bytes.subarray(start + 1);
}

/**
 * Returns true when the response of a call is encoded in the binary format, by `toBinary`: in gRPC,
 * gRPC-Web and Connect without JSON. A Connect GET request has no content type and counts as JSON.
 */
export function isBinaryCall(requestHeader: Pick<Headers, 'get'>): boolean {
  const type = requestHeader.get('content-type') ?? '';
  return /^application\/(grpc(-web)?(\+proto)?|(connect\+)?proto)\s*(;|$)/i.test(type);
}
