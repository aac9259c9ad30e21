import type { DescEnum, DescField, DescMessage } from '@bufbuild/protobuf';

/**
 * Start of the error of `@bufbuild/protobuf` about an unknown enum name in JSON (`from-json.js`).
 */
const ENUM_ERROR = /cannot decode enum (\S+) from JSON: (.*)$/s;

/**
 * Explains the error of `@bufbuild/protobuf` about an unknown enum value in JSON, which names only
 * the enum type.
 * @param input - Type of the request message.
 * @returns A text with the field (or fields, when several have the type), the value and the allowed
 *   values; undefined for any other error.
 */
export function explainEnumError(input: DescMessage, message: string): string | undefined {
  const [, typeName = '', value = ''] = ENUM_ERROR.exec(message) ?? [];
  const fields = typeName === '' ? [] : findEnumFields(input, typeName, new Set());
  const [first] = fields;
  if (first === undefined) return undefined;
  const paths = [...new Set(fields.map(({ path }) => path))];
  return `${paths.join(' or ')}: ${value} is not one of ${first.type.values.map(({ name }) => name).join(', ')}`;
}

interface EnumField {
  /** Such as `spec.ports[].protocol`. */
  readonly path: string;
  readonly type: DescEnum;
}

/**
 * Returns all fields of the enum type in a message type and its nested messages.
 * @param enclosing - Message types around `message`; recursive types are not searched again.
 */
function findEnumFields(
  message: DescMessage,
  typeName: string,
  enclosing: ReadonlySet<DescMessage>,
): readonly EnumField[] {
  if (enclosing.has(message)) return [];
  const within = new Set([...enclosing, message]);
  return message.fields.flatMap((field): readonly EnumField[] => {
    const path = field.name + (PATH_SUFFIXES[field.fieldKind] ?? '');
    if (field.enum !== undefined)
      return field.enum.typeName === typeName ? [{ path, type: field.enum }] : [];
    if (field.message === undefined) return [];
    return findEnumFields(field.message, typeName, within).map((inner) => ({
      ...inner,
      path: `${path}.${inner.path}`,
    }));
  });
}

const PATH_SUFFIXES: Partial<Record<DescField['fieldKind'], string>> = { list: '[]', map: '{}' };
