import type { DescField, DescMessage } from '@bufbuild/protobuf';

/** Type of an expression, as far as known before its evaluation. */
export type ValueType =
  /** A text, a number, a boolean, a duration or a timestamp. */
  | { readonly kind: 'value' }
  | { readonly kind: 'list'; readonly item: ValueType }
  /** A map whose keys are single values. */
  | { readonly kind: 'map'; readonly value: ValueType }
  | { readonly kind: 'message'; readonly message: DescMessage }
  /** Not known before the evaluation. */
  | { readonly kind: 'dynamic' };

export const VALUE: ValueType = { kind: 'value' };
export const DYNAMIC: ValueType = { kind: 'dynamic' };

/** Returns the type of a field of a message. */
export function typeOfField(field: DescField): ValueType {
  switch (field.fieldKind) {
    case 'list':
      return { kind: 'list', item: typeOfItem(field.message) };
    case 'map':
      return { kind: 'map', value: typeOfItem(field.message) };
    case 'message':
      return typeOfItem(field.message);
    default:
      return VALUE;
  }
}

function typeOfItem(message: DescMessage | undefined): ValueType {
  // Durations and timestamps are single values in CEL.
  if (message === undefined || message.typeName.startsWith('google.protobuf.')) return VALUE;
  return { kind: 'message', message };
}
