import type { DescEnum, DescField, DescMessage } from '@bufbuild/protobuf';

/**
 * How `@bufbuild/protobuf` begins the error about a JSON value that no enum value is called
 * (`from-json.js`).
 */
const ENUM_ERROR = /cannot decode enum (\S+) from JSON: (.*)$/s;

/**
 * Protobuf names the type of an enum it cannot read from JSON, which helps nobody who wrote a
 * field. Says which field of the message it is, or may be, and what it takes.
 * @returns undefined when the error is another one.
 */
export function explainEnumError(input: DescMessage, message: string): string | undefined {
  const [, typeName = '', given = ''] = ENUM_ERROR.exec(message) ?? [];
  const found = typeName === '' ? [] : fieldsOfEnum(input, typeName, new Set());
  const [first] = found;
  if (first === undefined) return undefined;
  const paths = [...new Set(found.map(({ path }) => path))];
  return `${paths.join(' or ')}: ${given} is not one of ${first.type.values.map(({ name }) => name).join(', ')}`;
}

interface EnumField {
  readonly path: string;
  readonly type: DescEnum;
}

/** @param above - The messages this one is in: one that holds itself is not searched again. */
function fieldsOfEnum(
  message: DescMessage,
  typeName: string,
  above: ReadonlySet<DescMessage>,
): readonly EnumField[] {
  if (above.has(message)) return [];
  const within = new Set([...above, message]);
  return message.fields.flatMap((field): readonly EnumField[] => {
    const path = field.name + (suffixes[field.fieldKind] ?? '');
    if (field.enum !== undefined)
      return field.enum.typeName === typeName ? [{ path, type: field.enum }] : [];
    if (field.message === undefined) return [];
    return fieldsOfEnum(field.message, typeName, within).map((inner) => ({
      ...inner,
      path: `${path}.${inner.path}`,
    }));
  });
}

const suffixes: Partial<Record<DescField['fieldKind'], string>> = { list: '[]', map: '{}' };
