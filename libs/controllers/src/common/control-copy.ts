import { equals } from '@bufbuild/protobuf';
import { ControlRecordSchema, type ControlRecord } from '@cloudless/api/store';

/**
 * Returns a copy of a control record that shares nothing with the record. Does what `clone` of
 * protobuf does, by properties instead of descriptors: every pass over a workload makes a copy.
 */
export function copyControl(control: ControlRecord): ControlRecord {
  return copyValue(control) as ControlRecord;
}

/** Returns true when two control records have the same content. */
export function isSameControl(a: ControlRecord, b: ControlRecord): boolean {
  // A default value that only one of the two has is no difference: `equals` decides then.
  return isSameValue(a, b) || equals(ControlRecordSchema, a, b);
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

function isSameValue(a: unknown, b: unknown): boolean {
  if (a === b) return true;
  if (typeof a !== 'object' || typeof b !== 'object' || a === null || b === null) return false;
  const keys = Object.keys(a);
  if (keys.length !== Object.keys(b).length) return false;
  const [left, right] = [a, b] as Readonly<Record<string, unknown>>[];
  return keys.every((key) => Object.hasOwn(b, key) && isSameValue(left?.[key], right?.[key]));
}
