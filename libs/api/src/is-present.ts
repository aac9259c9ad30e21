import { isFieldSet, type DescMessage, type Message } from '@bufbuild/protobuf';

/** A message counts as written when any of its fields is: an empty one means its defaults. */
export function isPresent(schema: DescMessage, message: Message | undefined): boolean {
  return message !== undefined && schema.fields.some((field) => isFieldSet(message, field));
}
