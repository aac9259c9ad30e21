/** What sort of failure it is, alike in code, on the wire and in the exit codes of the command line. */
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

/** A failure with a kind. The message says what failed and what to do; it does not repeat its cause. */
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
    super('invalid', violations.map(({ field, message }) => (field === '' ? message : `${field}: ${message}`)).join('; '));
  }
}

/** The kind of any thrown value; what is not ours is `internal`. */
export function errorKindOf(reason: unknown): ErrorKind {
  return reason instanceof CloudlessError ? reason.kind : 'internal';
}

/** The message of any thrown value. */
export function errorMessageOf(reason: unknown): string {
  return reason instanceof Error ? reason.message : String(reason);
}

/** A thrown value and its whole cause chain as log fields. */
export function errorFields(reason: unknown): {
  readonly error: string;
  readonly errorName?: string;
  readonly causes?: readonly string[];
} {
  if (!(reason instanceof Error)) return { error: String(reason) };
  const causes: string[] = [];
  let cause = reason.cause;
  while (cause !== undefined && causes.length < MAX_CAUSES) {
    causes.push(cause instanceof Error ? `${cause.name}: ${cause.message}` : String(cause));
    cause = cause instanceof Error ? cause.cause : undefined;
  }
  return { error: reason.message, errorName: reason.name, ...(causes.length > 0 ? { causes } : {}) };
}

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
