import { ScalarType, create, fromJson } from '@bufbuild/protobuf';
import type { DescField, DescMessage, JsonValue } from '@bufbuild/protobuf';
import fc from 'fast-check';
import { WorkloadSpecSchema } from '@cloudless/api';
import type { WorkloadSpec } from '@cloudless/api';
import { toDurationJson } from '../manifest/read-scalar.js';

/** Generates short texts, and texts that YAML reads as something else unless they are quoted. */
const anyText: fc.Arbitrary<string> = fc.oneof(
  fc.string({ unit: 'grapheme', maxLength: 12 }),
  fc.constantFrom(
    '',
    'true',
    'no',
    '1',
    '0x1f',
    '1e3',
    '~',
    'null',
    '- a',
    'a: b',
    '# c',
    '*x',
    '&x',
    '!t',
    '{',
    '[',
    "'",
    '"',
    '\t',
    ' x ',
    'a\nb\n',
    '|',
    '1:30',
    '=',
    '<<',
  ),
);

/**
 * Generates messages of `schema` in protobuf JSON: each field may be absent, at most one field of a
 * oneof is set.
 */
export function arbitraryJson(schema: DescMessage): fc.Arbitrary<JsonValue> {
  if (schema.typeName === 'google.protobuf.Duration')
    return fc.bigInt({ min: -(10n ** 15n), max: 10n ** 15n }).map(toDurationJson);
  if (schema.typeName === 'google.protobuf.Timestamp') {
    return fc
      .date({
        min: new Date('1970-01-01T00:00:00Z'),
        max: new Date('9999-12-31T00:00:00Z'),
        noInvalidDate: true,
      })
      .map((date) => date.toISOString());
  }
  const members = schema.members.map((member) => {
    if (member.kind === 'field')
      return fc
        .option(arbitraryField(member), { nil: undefined })
        .map((value) => toEntry(member.jsonName, value));
    return fc.option(
      fc.oneof(
        ...member.fields.map((field) =>
          arbitraryField(field).map((value) => toEntry(field.jsonName, value)),
        ),
      ),
      { nil: {} },
    );
  });
  return fc.tuple(...members).map((parts) => Object.assign({}, ...parts) as JsonValue);
}

/** Generates any spec that the schema allows. */
export const arbitrarySpec: fc.Arbitrary<WorkloadSpec> = arbitraryJson(WorkloadSpecSchema).map(
  (json) => fromJson(WorkloadSpecSchema, json),
);

/** Creates a spec with the given fields. */
export function aSpec(
  fields: Parameters<typeof create<typeof WorkloadSpecSchema>>[1] = {},
): WorkloadSpec {
  return create(WorkloadSpecSchema, fields);
}

function toEntry(key: string, value: JsonValue | undefined): Record<string, JsonValue> {
  return value === undefined ? {} : { [key]: value };
}

function arbitraryField(field: DescField): fc.Arbitrary<JsonValue> {
  switch (field.fieldKind) {
    case 'list':
      return fc.array(arbitraryElement(field), { maxLength: 3 });
    case 'map':
      return fc.dictionary(
        anyText.filter((key) => key !== '__proto__'),
        arbitraryElement(field),
        { maxKeys: 3, noNullPrototype: true },
      );
    default:
      return arbitraryElement(field);
  }
}

function arbitraryElement(field: DescField): fc.Arbitrary<JsonValue> {
  if (field.message !== undefined) return arbitraryJson(field.message);
  if (field.enum !== undefined)
    return fc.constantFrom(...field.enum.values.map(({ name }) => name));
  switch (field.scalar) {
    case ScalarType.BOOL:
      return fc.boolean();
    case ScalarType.INT32:
      return fc.integer({ min: -(2 ** 31), max: 2 ** 31 - 1 });
    case ScalarType.INT64:
      return fc.bigInt({ min: -(2n ** 63n), max: 2n ** 63n - 1n }).map(String);
    default:
      return anyText;
  }
}
