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
 * fields. No message contains another of its own schema, at any depth.
 */
export function arbitraryMessage<Desc extends DescMessage>(
  schema: Desc,
): fc.Arbitrary<MessageShape<Desc>> {
  return arbitraryInit(schema, []).map((init) => create(schema, init as never));
}

/** @param outer - The messages around this one. */
function arbitraryInit(schema: DescMessage, outer: readonly DescMessage[]): fc.Arbitrary<object> {
  if (schema.typeName === 'google.protobuf.Duration') return fc.nat(900_000).map(durationFromMs);
  if (schema.typeName === 'google.protobuf.Timestamp')
    return fc.nat(4_000_000_000_000).map(timestampFromMs);
  const path = [...outer, schema];
  const isAllowed = ({ message }: DescField): boolean =>
    message === undefined || !path.includes(message);
  const members = schema.members.flatMap((member) => {
    const fields = (member.kind === 'field' ? [member] : member.fields).filter(isAllowed);
    if (fields.length === 0) return [];
    const values = fields.map((field) =>
      member.kind === 'field'
        ? arbitraryField(field, path)
        : arbitraryField(field, path).map((value) => ({ case: field.localName, value })),
    );
    const value = fc.oneof(...values);
    return [[member.localName, fc.option(value, { nil: undefined, freq: 2 })] as const];
  });
  return fc.record(Object.fromEntries(members));
}

function arbitraryField(field: DescField, path: readonly DescMessage[]): fc.Arbitrary<unknown> {
  const item = arbitraryItem(field, path);
  if (field.fieldKind === 'list') return fc.array(item, { minLength: 1, maxLength: 2 });
  if (field.fieldKind !== 'map') return item;
  return fc.dictionary(fc.constantFrom('a', 'b', 'c"d', 'e.f'), item, {
    minKeys: 1,
    maxKeys: 2,
    noNullPrototype: true,
  });
}

function arbitraryItem(
  { message, enum: values, scalar }: DescField,
  path: readonly DescMessage[],
): fc.Arbitrary<unknown> {
  if (message !== undefined) return arbitraryInit(message, path);
  if (values !== undefined)
    return fc.constantFrom(...(values as DescEnum).values.map(({ number }) => number));
  switch (scalar) {
    case ScalarType.BOOL:
      return fc.boolean();
    case ScalarType.STRING:
      return fc.constantFrom('', 'x', 'y');
    case ScalarType.BYTES:
      return fc.uint8Array({ maxLength: 2 });
    case ScalarType.DOUBLE:
      return fc.double({ min: 0, max: 1, noNaN: true });
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
