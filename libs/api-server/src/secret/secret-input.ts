import type { Duration, Timestamp } from '@bufbuild/protobuf/wkt';
import { durationMs, timestampFromMs, timestampMs } from '@bufbuild/protobuf/wkt';
import { InvalidInputError, type Violation } from '@cloudless/base';
import type { SecretData } from '@cloudless/secrets';

/**
 * Values and keys of a secret at most, bytes. A version is one record, and a transaction of the store
 * has 1 MiB.
 */
export const MAX_DATA_BYTES = 1_000_000;
/** Keys of a secret at most. */
const MAX_KEYS = 100;
const MIN_TTL_MS = 1_000;

/** @throws kind `invalid` without a violation-free input. */
function refuse(violations: readonly Violation[]): void {
  if (violations.length > 0) throw new InvalidInputError(violations);
}

/** Returns the values of a request by key. */
export function toSecretData(data: Readonly<Record<string, Uint8Array>>): SecretData {
  return new Map(Object.entries(data));
}

/**
 * Checks the number of keys and the size of the values of a secret. The messages contain no values.
 * @throws kind `invalid`.
 */
export function checkData(data: SecretData): void {
  let bytes = 0;
  for (const [key, value] of data) bytes += Buffer.byteLength(key) + value.length;
  const violations: Violation[] = [];
  if (data.size === 0) violations.push({ field: 'data', message: 'needs at least one key' });
  if (data.size > MAX_KEYS)
    violations.push({ field: 'data', message: `has ${data.size} keys; the limit is ${MAX_KEYS}` });
  if (bytes > MAX_DATA_BYTES) {
    const message = `has ${bytes} bytes of keys and values; the limit is ${MAX_DATA_BYTES}`;
    violations.push({ field: 'data', message });
  }
  refuse(violations);
}

/** Checks audiences. `*` alone is an audience that allows all. @throws kind `invalid`. */
export function checkAudiences(audiences: readonly string[]): void {
  if (audiences.length > 0) return;
  const message =
    'needs at least one audience, such as workload/default.web, or workload/* for every workload of the namespace';
  refuse([{ field: 'audiences', message }]);
}

/**
 * Returns the end of the use of the values that a request asks for.
 * @returns Undefined: no end.
 * @throws kind `invalid` for a time that is not in the future, and for both fields.
 */
export function parseExpiry(
  {
    ttl,
    expiresAt,
  }: { readonly ttl?: Duration | undefined; readonly expiresAt?: Timestamp | undefined },
  nowMs: number,
): Timestamp | undefined {
  if (ttl !== undefined && expiresAt !== undefined)
    refuse([{ field: 'ttl', message: 'cannot be combined with expires_at; set one of them' }]);
  if (ttl !== undefined) {
    const ttlMs = durationMs(ttl);
    if (ttlMs < MIN_TTL_MS) refuse([{ field: 'ttl', message: 'must be at least 1 s' }]);
    return timestampFromMs(nowMs + ttlMs);
  }
  if (expiresAt !== undefined && timestampMs(expiresAt) <= nowMs)
    refuse([{ field: 'expires_at', message: 'must be in the future' }]);
  return expiresAt;
}

/** The fields of UpdateSecretRequest that `update_mask` may name. */
const MASK_PATHS = ['data', 'audiences', 'expires_at', 'immutable', 'labels'] as const;
export type SecretField = (typeof MASK_PATHS)[number];

/**
 * Returns the fields that an update changes.
 * @param present - The fields with a value.
 * @throws kind `invalid` for an unknown path.
 */
export function parseMask(
  paths: readonly string[] | undefined,
  present: Readonly<Record<SecretField, boolean>>,
): ReadonlySet<SecretField> {
  if (paths === undefined || paths.length === 0)
    return new Set(MASK_PATHS.filter((path) => present[path]));
  const unknown = paths.filter((path) => !MASK_PATHS.includes(path as SecretField));
  refuse(
    unknown.map((path) => ({
      field: 'update_mask',
      message: `"${path}" is not a field that can change; name ${MASK_PATHS.join(', ')}`,
    })),
  );
  const named = new Set(paths as readonly SecretField[]);
  refuse(
    MASK_PATHS.filter((path) => present[path] && !named.has(path)).map((path) => ({
      field: path,
      message: 'has a value and is not in update_mask; add the path, or remove the value',
    })),
  );
  return named;
}
