import {
  ScalarType,
  create,
  fromBinary,
  toBinary,
  type DescField,
  type DescMessage,
  type Message,
} from '@bufbuild/protobuf';
import fc from 'fast-check';
import { EventSchema, ReplicaReportSchema, WorkloadSchema } from '@cloudless/api';
import * as records from '@cloudless/api/store';
import { createMessageCodec } from './message-codec.js';
import { createMessagePlan } from './message-plan.js';

const schemas: readonly DescMessage[] = [
  ...(Object.values(records) as readonly unknown[]).filter(isDescMessage),
  EventSchema,
  ReplicaReportSchema,
  WorkloadSchema,
];

/** Records with a field that the fast path does not cover. There are few of them. */
const WITHOUT_FAST_PATH: readonly DescMessage[] = [records.PolicyRecordSchema];

function isDescMessage(value: unknown): value is DescMessage {
  return typeof value === 'object' && value !== null && 'kind' in value && value.kind === 'message';
}

/** Text as users write it, and text that has no exact form in UTF-8. */
const arbText = fc.oneof(
  fc.string({ maxLength: 12 }),
  fc.string({ unit: 'binary', maxLength: 60 }),
  fc.string({ minLength: 40, maxLength: 300 }),
  fc.constantFrom('', 'é', '\uFEFFx', '\uD800', 'x'.repeat(200), '__proto__'),
);
const arbInt32 = fc.oneof(
  fc.integer(),
  fc.constantFrom(0, -0, 1, 127, 128, -1, 2 ** 31 - 1, -(2 ** 31)),
);

function arbScalar(type: ScalarType): fc.Arbitrary<unknown> {
  switch (type) {
    case ScalarType.STRING:
      return arbText;
    case ScalarType.BOOL:
      return fc.boolean();
    case ScalarType.INT32:
      return arbInt32;
    case ScalarType.UINT32:
      return fc.oneof(fc.nat(), fc.constantFrom(0, -0, 2 ** 32 - 1, 2 ** 31));
    case ScalarType.INT64:
      return fc.oneof(
        fc.bigInt({ min: -(2n ** 63n), max: 2n ** 63n - 1n }),
        fc.constantFrom(0n, 1n, -1n, 2n ** 31n, 2n ** 53n, 2n ** 53n - 1n, 2n ** 63n - 1n),
      );
    case ScalarType.UINT64:
      return fc.oneof(fc.bigInt({ min: 0n, max: 2n ** 64n - 1n }), fc.constantFrom(2n ** 53n));
    case ScalarType.DOUBLE:
      return fc.oneof(fc.double(), fc.constantFrom(0, -0, Number.NaN));
    case ScalarType.BYTES:
      return fc.uint8Array({ maxLength: 300 });
    default:
      throw new Error(`no field of the API has the type ${ScalarType[type]}`);
  }
}

function arbValue(field: DescField, depth: number): fc.Arbitrary<unknown> {
  if (field.message !== undefined) return arbMessage(field.message, depth + 1);
  if (field.enum !== undefined) return fc.integer({ min: 0, max: 200 });
  return arbScalar(field.scalar ?? ScalarType.INT32);
}

/** Any message of a type. Nested messages become rarer with the depth. */
function arbMessage(schema: DescMessage, depth = 0): fc.Arbitrary<Message> {
  const arbFields = schema.fields.map((field) => {
    const arb: fc.Arbitrary<unknown> =
      field.fieldKind === 'list'
        ? fc.array(arbValueLater(field, depth), { maxLength: 3 })
        : field.fieldKind === 'map'
          ? fc.dictionary(arbMapKey(field.mapKey), arbValueLater(field, depth), {
              maxKeys: 3,
              noNullPrototype: true,
            })
          : arbValueLater(field, depth);
    return fc.option(arb, { nil: undefined, freq: depth === 0 ? 2 : 1 });
  });
  return fc.tuple(...arbFields).map((values) => {
    const message = create(schema) as Message & Record<string, unknown>;
    for (const [index, field] of schema.fields.entries()) {
      const value = values[index];
      if (value === undefined) continue;
      if (field.oneof === undefined) message[field.localName] = value;
      else message[field.oneof.localName] = { case: field.localName, value };
    }
    return message;
  });
}

function arbMapKey(type: ScalarType): fc.Arbitrary<string> {
  return type === ScalarType.STRING ? arbText : fc.integer().map(String);
}

function arbValueLater(field: DescField, depth: number): fc.Arbitrary<unknown> {
  if (field.message !== undefined && depth >= 4) return fc.constant(create(field.message));
  return fc.constant(undefined).chain(() => arbValue(field, depth));
}

/** The result of a function or the message of its error. */
function attempt(action: () => unknown): unknown {
  try {
    return { result: action() };
  } catch (reason) {
    return { error: (reason as Error).message };
  }
}

describe.each(schemas.map((schema) => [schema.typeName, schema] as const))(
  'The codec of %s',
  (_, schema) => {
    const codec = createMessageCodec(schema);

    it('has a fast path where many messages are read', () => {
      const hasFastPath = createMessagePlan(schema) !== undefined;
      expect(hasFastPath).toBe(!WITHOUT_FAST_PATH.includes(schema));
    });

    it('writes the bytes of protobuf-es and reads them to the same message', () => {
      fc.assert(
        fc.property(arbMessage(schema), (message) => {
          const expected = toBinary(schema, message);
          const { bytes, isExact } = codec.encode(message);
          expect(Buffer.from(bytes).equals(expected)).toBe(true);
          const read = codec.decode(expected);
          expect(read).toStrictEqual(fromBinary(schema, expected));
          if (isExact) expect(read).toStrictEqual(message);
        }),
        { numRuns: 12 },
      );
    });

    it('treats damaged and foreign bytes as protobuf-es does', () => {
      const arbDamage = fc.array(fc.tuple(fc.nat(), fc.nat(255)), { maxLength: 3 });
      fc.assert(
        fc.property(arbMessage(schema), arbDamage, fc.nat(), (message, damage, cut) => {
          const bytes = toBinary(schema, message);
          for (const [at, byte] of damage) if (bytes.length > 0) bytes[at % bytes.length] = byte;
          const part = bytes.subarray(0, bytes.length - (cut % 4));
          const expected = attempt(() => fromBinary(schema, part));
          expect(attempt(() => codec.decode(part))).toStrictEqual(expected);
        }),
        { numRuns: 12 },
      );
    });
  },
);
