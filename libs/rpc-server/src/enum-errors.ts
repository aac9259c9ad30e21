import type { DescEnum, DescField, DescMessage } from '@bufbuild/protobuf';

/**
 * Start of the error of `@bufbuild/protobuf` about an unknown enum name in JSON (`from-json.js`).
 */
const ENUM_ERROR = /cannot decode enum (\S+) from JSON: (.*)$/s;

/**
 * Names the field in the error about an unknown enum value in JSON. Protobuf itself names only the
 * enum type.
 * @returns The field (or fields, when several have the type), the value and the allowed values;
 *   undefined for any other error.
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

/** @param above - The enclosing messages; recursive types are not searched again. */
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
