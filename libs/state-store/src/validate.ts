import { CloudlessError } from '@cloudless/base';
import {
  MAX_KEY_BYTES,
  MAX_TXN_BYTES,
  MAX_TXN_OPERATIONS,
  type Change,
  type Compare,
  type Operation,
  type RangeRequest,
} from './state-store.js';
import { countUtf8Bytes } from './utf8.js';

/** Default limit of the entries of a page. Small enough that one page is read without a pause. */
export const DEFAULT_RANGE_LIMIT = 1_000;

/**
 * Changes that an engine retains by default, so that a client that was away for some minutes can
 * resume its watch.
 */
export const DEFAULT_HISTORY_LIMIT = 100_000;
/** Bytes of changes that an engine retains by default. Bounds the history when values are large. */
export const DEFAULT_HISTORY_BYTES = 64 * 1024 * 1024;

/** Returns the key that a change has written. */
export function getChangedKey(change: Change): string {
  return change.kind === 'put' ? change.entry.key : change.key;
}

/** Returns the key that an operation writes. */
export function getKey(operation: Operation): string {
  return 'put' in operation ? operation.put : operation.delete;
}

/**
 * Checks the limits of a transaction.
 * @returns The bytes of all its keys and values.
 * @throws kind `invalid`, naming the limit and the key.
 */
export function checkTransaction(
  compares: readonly Compare[],
  operations: readonly Operation[],
): number {
  if (compares.length > MAX_TXN_OPERATIONS)
    refuse(`${compares.length} compares in a transaction; the limit is ${MAX_TXN_OPERATIONS}`);
  if (operations.length > MAX_TXN_OPERATIONS)
    refuse(`${operations.length} operations in a transaction; the limit is ${MAX_TXN_OPERATIONS}`);
  let bytes = 0;
  for (const { key } of compares) bytes += checkKey(key);
  for (const operation of operations) {
    bytes += checkKey(getKey(operation));
    if ('put' in operation) bytes += operation.value.byteLength;
  }
  if (bytes > MAX_TXN_BYTES)
    refuse(`${bytes} bytes of keys and values in a transaction; the limit is ${MAX_TXN_BYTES}`);
  if (operations.length > 1) checkWrittenOnce(operations);
  return bytes;
}

/**
 * Checks a request of a range.
 * @throws kind `invalid` for a limit that is not a positive integer, or text that is not valid
 *   UTF-8.
 */
export function checkRange(request: RangeRequest): void {
  checkPrefix(request.prefix);
  if (request.after !== undefined && countUtf8Bytes(request.after) === undefined)
    refuse('"after" contains a lone surrogate');
  const { limit = DEFAULT_RANGE_LIMIT } = request;
  if (!Number.isInteger(limit) || limit < 1)
    refuse(`limit ${limit} is not an integer of 1 or more`);
}

/**
 * Checks a prefix. Any UTF-8 text is valid, also the empty text.
 * @throws kind `invalid` for a lone surrogate.
 */
export function checkPrefix(prefix: string): void {
  if (countUtf8Bytes(prefix) === undefined) refuse('prefix contains a lone surrogate');
}

/**
 * Checks a key.
 * @returns The length of the key in bytes.
 * @throws kind `invalid` when the key is empty, too long or has a lone surrogate.
 */
export function checkKey(key: string): number {
  const bytes = countUtf8Bytes(key);
  if (bytes === undefined) refuse(`key ${JSON.stringify(key)} contains a lone surrogate`);
  if (bytes === 0) refuse('a key is empty');
  if (bytes > MAX_KEY_BYTES)
    refuse(
      `key ${JSON.stringify(`${key.slice(0, 40)}…`)} has ${bytes} bytes; the limit is ${MAX_KEY_BYTES}`,
    );
  return bytes;
}

/** @throws kind `invalid` for a TTL that is not finite or below 1 ms. */
export function checkTtl(ttlMs: number): void {
  if (!Number.isFinite(ttlMs) || ttlMs < 1) refuse(`ttl ${ttlMs} ms is not 1 or more`);
}

/** @throws kind `invalid` for a limit that is not an integer of 1 or more. */
export function checkHistoryLimit(
  historyLimit: number,
  historyBytes = DEFAULT_HISTORY_BYTES,
): void {
  if (!Number.isInteger(historyLimit) || historyLimit < 1)
    refuse(`history limit ${historyLimit} is not a whole number of 1 or more`);
  if (!Number.isInteger(historyBytes) || historyBytes < 1)
    refuse(`history bytes ${historyBytes} is not a whole number of 1 or more`);
}

function checkWrittenOnce(operations: readonly Operation[]): void {
  const written = new Set<string>();
  for (const operation of operations) {
    const key = getKey(operation);
    if (written.has(key)) refuse(`key ${JSON.stringify(key)} is written twice in a transaction`);
    written.add(key);
  }
}

function refuse(message: string): never {
  throw new CloudlessError('invalid', message);
}
