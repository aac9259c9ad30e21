import type { Message } from '@bufbuild/protobuf';

/**
 * Returns a copy of a message that shares nothing with the message. Does what `clone` of protobuf
 * does, by properties instead of descriptors, in a fraction of the time.
 * @param message - As `create` or a decoder of protobuf returns it, with all of its fields.
 */
export function copyMessage<Shape extends Message>(message: Shape): Shape {
  return copyValue(message) as Shape;
}

function copyValue(value: unknown): unknown {
  if (typeof value !== 'object' || value === null) return value;
  if (Array.isArray(value)) return value.map(copyValue);
  if (value instanceof Uint8Array) return value.slice();
  const source = value as Readonly<Record<string, unknown>>;
  const copy: Record<string, unknown> = isPlain(value)
    ? { ...source }
    : Object.assign(Object.create(Object.getPrototypeOf(value) as object), source);
  for (const key in source) {
    const part = source[key];
    if (typeof part === 'object' && part !== null && Object.hasOwn(source, key))
      copy[key] = copyValue(part);
  }
  return copy;
}

function isPlain(value: object): boolean {
  return Object.getPrototypeOf(value) === Object.prototype;
}
