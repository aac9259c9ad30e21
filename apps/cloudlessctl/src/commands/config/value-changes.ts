import { create } from '@bufbuild/protobuf';
import { FieldChangeSchema } from '@cloudless/api';
import type { Style } from '../../output/style.js';
import { formatFieldChange } from '../../views/field-change-view.js';
import { decodeText, type Values } from '../../value-rules.js';

/** Formats the changed values of a config as lines; empty when no value changes. */
export function formatValueChanges(before: Values, after: Values, style: Style): string {
  const keys = [...new Set([...Object.keys(before), ...Object.keys(after)])].sort();
  return keys
    .filter((key) => !isEqual(before[key], after[key]))
    .flatMap((key) => {
      const change = create(FieldChangeSchema, {
        path: `data[${JSON.stringify(key)}]`,
        before: toJsonText(before[key]),
        after: toJsonText(after[key]),
      });
      return formatFieldChange(undefined, change, style);
    })
    .map((line) => `${line}\n`)
    .join('');
}

/** Returns JSON of a value; empty when the value is absent. */
function toJsonText(value: Uint8Array | undefined): string {
  if (value === undefined) return '';
  return JSON.stringify(decodeText(value) ?? `(${value.length} bytes, no text)`);
}

/** Returns true when two values are the same bytes. */
export function isEqual(a: Uint8Array | undefined, b: Uint8Array | undefined): boolean {
  if (a === undefined || b === undefined) return a === b;
  return a.length === b.length && a.every((byte, index) => byte === b[index]);
}
