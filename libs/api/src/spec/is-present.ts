import { isFieldSet, type DescMessage, type Message } from '@bufbuild/protobuf';

/**
 * True when any field of the message is set. An empty message means its defaults and does not
 * count.
 */
export function isPresent(schema: DescMessage, message: Message | undefined): boolean {
  return message !== undefined && schema.fields.some((field) => isFieldSet(message, field));
}
