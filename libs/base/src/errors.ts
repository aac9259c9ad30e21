/**
 * What sort of failure it is, alike in code, on the wire and in the exit codes of the command line.
 */
export type ErrorKind =
  | 'invalid' // the input is wrong and will stay wrong
  | 'notFound'
  | 'exists'
  | 'denied'
  | 'precondition' // right input, wrong moment
  | 'conflict' // something changed meanwhile: read again, plan again
  | 'exhausted'
  | 'unavailable' // try again later
  | 'unauthenticated'
  | 'unimplemented'
  | 'deadline'
  | 'compacted' // the history asked for is gone: take a snapshot
  | 'internal';

/**
 * A failure with a kind. The message says what failed and what to do; it does not repeat its cause.
 */
export class CloudlessError extends Error {
  constructor(
    readonly kind: ErrorKind,
    message: string,
    options?: { readonly cause?: unknown },
  ) {
    super(message, options);
    this.name = new.target.name;
  }
}

/** One thing wrong with an input: where, and what to do about it. */
export interface Violation {
  /** Path of the field, as in `spec.ports[0].port`; empty for the whole input. */
  readonly field: string;
  readonly message: string;
}

/** The input is wrong. All problems found are listed, each with its field. */
export class InvalidInputError extends CloudlessError {
  constructor(readonly violations: readonly Violation[]) {
    super(
      'invalid',
      violations
        .map(({ field, message }) => (field === '' ? message : `${field}: ${message}`))
        .join('; '),
    );
  }
}

/** The kind of any thrown value; what is not ours is `internal`. */
export function errorKindOf(reason: unknown): ErrorKind {
  return reason instanceof CloudlessError ? reason.kind : 'internal';
}

/**
 * The message of any thrown value. An error without one gives those of the errors it gathers
 * (Node's refused connection to a name with several addresses is such an `AggregateError`), or its
 * name.
 */
export function errorMessageOf(reason: unknown): string {
  if (!isError(reason)) return showValue(reason);
  if (reason.message !== '') return reason.message;
  return gatheredBy(reason).map(nameAndMessage).join('; ') || reason.name;
}

/**
 * A thrown value and its whole cause chain as log fields. The errors of an `AggregateError` count
 * as causes.
 */
export function errorFields(reason: unknown): {
  readonly error: string;
  readonly errorName?: string;
  readonly causes?: readonly string[];
} {
  if (!isError(reason)) return { error: showValue(reason) };
  const causes: string[] = [];
  for (
    let next = causesOf(reason);
    next.length > 0 && causes.length < MAX_CAUSES;
    next = next.flatMap(causesOf)
  ) {
    causes.push(...next.slice(0, MAX_CAUSES - causes.length).map(nameAndMessage));
  }
  return {
    error: errorMessageOf(reason),
    errorName: reason.name,
    ...(causes.length > 0 ? { causes } : {}),
  };
}

function causesOf(reason: unknown): readonly unknown[] {
  if (!isError(reason)) return [];
  return [...(reason.cause === undefined ? [] : [reason.cause]), ...gatheredBy(reason)];
}

function gatheredBy(reason: Error): readonly unknown[] {
  return reason instanceof AggregateError ? reason.errors.slice(0, MAX_CAUSES) : [];
}

function nameAndMessage(reason: unknown): string {
  return isError(reason) ? `${reason.name}: ${reason.message}` : showValue(reason);
}

/** Also an error of another realm, as those that Node's own modules throw into a sandbox. */
function isError(reason: unknown): reason is Error {
  return reason instanceof Error || Object.prototype.toString.call(reason) === '[object Error]';
}

/**
 * Any value as text for people; never throws, as `String` does for an object without a prototype.
 */
export function showValue(value: unknown): string {
  if (typeof value === 'function') return 'a function';
  if (typeof value !== 'object' || value === null) return String(value);
  try {
    return JSON.stringify(value) ?? UNSHOWABLE;
  } catch {
    return UNSHOWABLE; // a cycle, a bigint, a toJSON that throws
  }
}

const UNSHOWABLE = 'an object';

/** A cause chain may be a cycle; nobody reads more than this many links. */
const MAX_CAUSES = 8;

/** For our own mistakes, not for input: throws when `condition` does not hold. */
export function assert(condition: boolean, message: string): asserts condition {
  if (!condition) throw new CloudlessError('internal', `assertion failed: ${message}`);
}

/** Closes a union: a case that was forgotten does not compile. */
export function assertNever(value: never): never {
  throw new CloudlessError('internal', `unexpected value ${showValue(value)}`);
}
