import { fromBinary, toBinary, type DescMessage, type MessageShape } from '@bufbuild/protobuf';
import { createMessagePlan, type MessagePlan } from './message-plan.js';
import { CANNOT_READ, WireReader } from './wire-reader.js';
import { CANNOT_WRITE, WireWriter } from './wire-writer.js';

/** An encoded message. */
export interface EncodedMessage {
  /** Read-only: the memory around the bytes belongs to other messages. */
  readonly bytes: Uint8Array;
  /** True when decoding these bytes gives a message equal to the encoded one. */
  readonly isExact: boolean;
}

/** Encodes and decodes messages of one type. */
export interface MessageCodec<Schema extends DescMessage> {
  /** @throws The errors of `toBinary`. */
  encode(message: MessageShape<Schema>): EncodedMessage;
  /**
   * @param bytes - Read-only from now on when the type has `bytes` fields, which share the memory.
   *   Nothing else of the message shares it.
   * @throws The errors of `fromBinary`.
   */
  decode(bytes: Uint8Array): MessageShape<Schema>;
}

/** Hand-written functions for the messages of one type, faster than the generic ones. */
export interface MessageAccess<Schema extends DescMessage> {
  /** Creates a message equal to `create(schema)`; the empty lists of the message may be shared. */
  readonly createEmpty?: () => MessageShape<Schema>;
  /**
   * Lists the values of all fields of a message, in the order of the field numbers, undefined for
   * absent fields. Not for types with a oneof.
   */
  readonly listValues?: (message: MessageShape<Schema>, values: unknown[]) => void;
}

const writer = new WireWriter();
const reader = new WireReader();

/**
 * Creates a codec with the results of protobuf-es, in a fraction of the time: the descriptor is
 * read once instead of for each message. Messages that need more than the fast path, such as those
 * with unknown fields, are left to protobuf-es.
 * @param access - Default: general ways, which take longer.
 */
export function createMessageCodec<Schema extends DescMessage>(
  schema: Schema,
  access: MessageAccess<Schema> = {},
): MessageCodec<Schema> {
  const { createEmpty, listValues } = access;
  const values: unknown[] = [];
  let plan: MessagePlan | undefined;
  let isPlanned = false;
  const getPlan = (): MessagePlan | undefined => {
    if (!isPlanned) plan = createMessagePlan(schema);
    isPlanned = true;
    return plan;
  };
  return {
    encode: (message) => {
      const known = getPlan();
      if (known !== undefined) {
        try {
          listValues?.(message, values);
          return writer.write(known, message, listValues && values);
        } catch (reason) {
          if (reason !== CANNOT_WRITE) throw reason;
        }
      }
      return { bytes: toBinary(schema, message), isExact: false };
    },
    decode: (bytes) => {
      const known = getPlan();
      if (known !== undefined) {
        try {
          return reader.read(known, bytes, createEmpty) as MessageShape<Schema>;
        } catch (reason) {
          if (reason !== CANNOT_READ) throw reason;
        }
      }
      // A copy, because unknown fields share the memory.
      return fromBinary(schema, bytes.slice());
    },
  };
}
