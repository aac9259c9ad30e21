import { isFieldSet, type DescMessage, type Message } from '@bufbuild/protobuf';

/**
 * Returns true when the message has any field that is set. An empty message means the same as an
 * absent one.
 */
export function isPresent(schema: DescMessage, message: Message | undefined): boolean {
  return message !== undefined && schema.fields.some((field) => isFieldSet(message, field));
}
