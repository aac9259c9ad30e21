import { equals } from '@bufbuild/protobuf';
import { copyMessage } from '@cloudless/api';
import { ControlRecordSchema, type ControlRecord } from '@cloudless/api/store';

/** Returns a copy of a control record that shares nothing with the record. */
export function copyControl(control: ControlRecord): ControlRecord {
  return copyMessage(control);
}

/** Returns true when two control records have the same content. */
export function isSameControl(a: ControlRecord, b: ControlRecord): boolean {
  // A default value that only one of the two has is no difference: `equals` decides then.
  return isSameValue(a, b) || equals(ControlRecordSchema, a, b);
}

function isSameValue(a: unknown, b: unknown): boolean {
  if (a === b) return true;
  if (typeof a !== 'object' || typeof b !== 'object' || a === null || b === null) return false;
  const keys = Object.keys(a);
  if (keys.length !== Object.keys(b).length) return false;
  const [left, right] = [a, b] as Readonly<Record<string, unknown>>[];
  return keys.every((key) => Object.hasOwn(b, key) && isSameValue(left?.[key], right?.[key]));
}
