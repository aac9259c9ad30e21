import { createUsageFailure } from './call/failure.js';

/** Values by key. */
export type Values = Readonly<Record<string, Uint8Array>>;

/** Bounds of the API for the values of one secret or config. */
const MAX_KEYS = 100;
const MAX_KEY_LENGTH = 253;
const MAX_TOTAL_BYTES = 1_000_000;

/** The rule of keys in words. */
const KEY_RULE = 'letters, digits, one leading . and inner . _ -, at most 253 characters';

/**
 * Checks keys and sizes as the coordinator does, before values leave the machine.
 * @throws {@link CliFailure} with exit code 2. The message contains no value.
 */
export function checkValues(values: Values): void {
  const problem = findValueProblem(values);
  if (problem !== undefined) throw createUsageFailure(problem);
}

/** Returns the first problem of the keys and sizes of values; undefined when there is none. */
export function findValueProblem(values: Values): string | undefined {
  const keys = Object.keys(values);
  const invalid = keys.find(
    (key) =>
      key.length > MAX_KEY_LENGTH || !/^[.]?[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?$/.test(key),
  );
  if (invalid !== undefined)
    return `${JSON.stringify(invalid)} is not a valid key: expected ${KEY_RULE}; for another key of a file, use --from-file KEY=PATH`;
  if (keys.length > MAX_KEYS)
    return `${keys.length} keys were given; at most ${MAX_KEYS} are allowed`;
  const total = Object.values(values).reduce((sum, value) => sum + value.length, 0);
  if (total <= MAX_TOTAL_BYTES) return undefined;
  const [largest = ''] = keys.sort((a, b) => (values[b]?.length ?? 0) - (values[a]?.length ?? 0));
  return `the values have ${total} bytes, of which ${largest} has ${values[largest]?.length ?? 0}; at most ${MAX_TOTAL_BYTES} bytes are allowed`;
}

/** Returns a value as text; undefined when the bytes are not UTF-8 or contain a zero byte. */
export function decodeText(value: Uint8Array): string | undefined {
  if (value.includes(0)) return undefined;
  try {
    return new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(value);
  } catch {
    return undefined;
  }
}
