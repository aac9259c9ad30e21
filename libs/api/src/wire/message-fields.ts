import type { DescField, DescMessage, Message } from '@bufbuild/protobuf';

/** A field that holds messages: one, a list, or the values of a map. */
export type MessageField = DescField & { readonly message: DescMessage };

/**
 * Returns the fields of a schema whose messages satisfy `isWanted` or contain, at any depth,
 * messages that do.
 */
export function listFieldsThatReach(
  schema: DescMessage,
  isWanted: (reached: DescMessage) => boolean,
): readonly MessageField[] {
  return schema.fields.filter(
    (field): field is MessageField =>
      holdsMessages(field) && listReachableMessages(field.message).some(isWanted),
  );
}

/**
 * Returns true when `test` returns true for a message in one of the fields. Reads the fields
 * without reflection and creates no object for a single message.
 */
export function someMessage(
  message: Message,
  fields: readonly MessageField[],
  test: (schema: DescMessage, inner: Message) => boolean,
): boolean {
  const values = message as unknown as Readonly<Record<string, unknown>>;
  for (const field of fields) {
    const value = readValue(field, values);
    if (value === undefined) continue;
    if (field.fieldKind === 'message') {
      if (test(field.message, value as Message)) return true;
      continue;
    }
    const items = field.fieldKind === 'list' ? value : Object.values(value as object);
    for (const item of items as readonly Message[]) if (test(field.message, item)) return true;
  }
  return false;
}

function holdsMessages(field: DescField): field is MessageField {
  return field.fieldKind !== 'enum' && field.fieldKind !== 'scalar' && field.message !== undefined;
}

/** Returns the value of a field, or of a member of a oneof; undefined when it is not set. */
function readValue(
  { localName, oneof }: MessageField,
  values: Readonly<Record<string, unknown>>,
): unknown {
  if (oneof === undefined) return values[localName];
  const chosen = values[oneof.localName] as
    { readonly case?: string; readonly value?: unknown } | undefined;
  return chosen?.case === localName ? chosen.value : undefined;
}

/**
 * Returns the schemas of all messages that a message of this schema can contain, and the schema
 * itself. The loop visits schemas that it adds to the set, each once, so it ends for recursive
 * messages too.
 */
function listReachableMessages(schema: DescMessage): DescMessage[] {
  const reached = new Set([schema]);
  for (const { fields } of reached)
    for (const field of fields) if (holdsMessages(field)) reached.add(field.message);
  return [...reached];
}
