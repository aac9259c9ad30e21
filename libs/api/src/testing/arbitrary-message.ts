import {
  create,
  ScalarType,
  type DescEnum,
  type DescField,
  type DescMessage,
  type MessageShape,
} from '@bufbuild/protobuf';
import { durationFromMs, timestampFromMs } from '@bufbuild/protobuf/wkt';
import fc from 'fast-check';

/**
 * Returns a fast-check arbitrary that generates messages of a schema. Each field, at every depth,
 * is set or absent at random. The arbitrary is derived from the descriptor, so it includes new
 * fields.
 */
export function arbitraryMessage<Desc extends DescMessage>(
  schema: Desc,
): fc.Arbitrary<MessageShape<Desc>> {
  return arbitraryInit(schema).map((init) => create(schema, init as never));
}

function arbitraryInit(schema: DescMessage): fc.Arbitrary<object> {
  if (schema.typeName === 'google.protobuf.Duration') return fc.nat(900_000).map(durationFromMs);
  if (schema.typeName === 'google.protobuf.Timestamp')
    return fc.nat(4_000_000_000_000).map(timestampFromMs);
  const members = schema.members.map((member) => {
    const value =
      member.kind === 'field'
        ? arbitraryField(member)
        : fc.oneof(
            ...member.fields.map((field) =>
              arbitraryField(field).map((given) => ({ case: field.localName, value: given })),
            ),
          );
    return [member.localName, fc.option(value, { nil: undefined, freq: 2 })] as const;
  });
  return fc.record(Object.fromEntries(members));
}

function arbitraryField(field: DescField): fc.Arbitrary<unknown> {
  const item = arbitraryItem(field);
  if (field.fieldKind === 'list') return fc.array(item, { minLength: 1, maxLength: 2 });
  if (field.fieldKind !== 'map') return item;
  return fc.dictionary(fc.constantFrom('a', 'b', 'c"d', 'e.f'), item, {
    minKeys: 1,
    maxKeys: 2,
    noNullPrototype: true,
  });
}

function arbitraryItem({ message, enum: values, scalar }: DescField): fc.Arbitrary<unknown> {
  if (message !== undefined) return arbitraryInit(message);
  if (values !== undefined)
    return fc.constantFrom(...(values as DescEnum).values.map(({ number }) => number));
  switch (scalar) {
    case ScalarType.BOOL:
      return fc.boolean();
    case ScalarType.STRING:
      return fc.constantFrom('', 'x', 'y');
    case ScalarType.INT32:
      return fc.nat(3);
    case ScalarType.INT64:
      return fc.bigInt(0n, 3n);
    default:
      throw new Error(
        `scalar type ${String(scalar)} is not supported: add a case to arbitraryItem`,
      );
  }
}
