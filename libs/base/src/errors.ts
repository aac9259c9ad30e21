import type { ErrorKind } from './error-kind.js';
import { DEFAULT_REASONS, ERROR_REASON_KINDS, isErrorReason } from './error-reasons.js';
import type { ErrorReason } from './error-reasons.js';

/** Optional parts of a {@link CloudlessError}. */
export interface CloudlessErrorOptions {
  readonly cause?: unknown;
  /** Delay in milliseconds after which a retry makes sense. Default: by the reason. */
  readonly retryAfterMs?: number | undefined;
  /** Values for programs, such as the generation that was found. Clients receive them. */
  readonly metadata?: Readonly<Record<string, string>> | undefined;
}

/**
 * An error with a kind and a reason. The message states what failed and what to do, and does not
 * repeat the message of the cause.
 */
export class CloudlessError extends Error {
  readonly kind: ErrorKind;
  /** The cause for programs; the default of the kind unless the error was created with a reason. */
  readonly reason: ErrorReason;
  /** See {@link CloudlessErrorOptions}. */
  declare readonly retryAfterMs?: number;
  /** See {@link CloudlessErrorOptions}. */
  declare readonly metadata?: Readonly<Record<string, string>>;

  /**
   * @param kindOrReason - A reason, which implies the kind; or a kind, when no reason is more
   *   specific.
   */
  constructor(
    kindOrReason: ErrorKind | ErrorReason,
    message: string,
    options: CloudlessErrorOptions = {},
  ) {
    super(message, 'cause' in options ? { cause: options.cause } : undefined);
    this.name = new.target.name;
    this.kind = isErrorReason(kindOrReason) ? ERROR_REASON_KINDS[kindOrReason] : kindOrReason;
    this.reason = isErrorReason(kindOrReason) ? kindOrReason : DEFAULT_REASONS[kindOrReason];
    if (options.retryAfterMs !== undefined) this.retryAfterMs = options.retryAfterMs;
    if (options.metadata !== undefined) this.metadata = options.metadata;
  }
}

/** One problem of an input: the field, and what to change. */
export interface Violation {
  /** Path of the field, for example `spec.ports[0].port`; empty for the whole input. */
  readonly field: string;
  readonly message: string;
}

/** Error of kind `invalid` that lists all problems of an input, each with its field. */
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

/** Returns the reason of any thrown value; `INTERNAL` unless it is a {@link CloudlessError}. */
export function errorReasonOf(reason: unknown): ErrorReason {
  return reason instanceof CloudlessError ? reason.reason : 'INTERNAL';
}

/** Returns true when a thrown value, or one of its causes, has this reason. */
export function hasErrorReason(thrown: unknown, reason: ErrorReason): boolean {
  for (let error = thrown; error instanceof Error; error = error.cause)
    if (errorReasonOf(error) === reason) return true;
  return false;
}

/** Returns the kind of any thrown value; `internal` unless it is a {@link CloudlessError}. */
export function errorKindOf(reason: unknown): ErrorKind {
  return reason instanceof CloudlessError ? reason.kind : 'internal';
}

/**
 * Returns the message of any thrown value. For an error without a message: the messages of its
 * aggregated errors (Node.js throws such an `AggregateError` when a name with several addresses
 * refuses the connection), or the name of the error.
 */
export function errorMessageOf(reason: unknown): string {
  if (!isError(reason)) return showValue(reason);
  if (reason.message !== '') return reason.message;
  return aggregatedErrorsOf(reason).map(nameAndMessage).join('; ') || reason.name;
}

/**
 * Returns a thrown value with its cause chain, at most {@link MAX_CAUSES} causes, as log fields.
 * The errors of an `AggregateError` count as causes. Never throws.
 */
export function errorFields(reason: unknown): {
  readonly error: string;
  readonly errorName?: string;
  readonly causes?: readonly string[];
} {
  if (!isError(reason)) return { error: showValue(reason) };
  const causes: string[] = [];
  for (
    let level = causesOf(reason);
    level.length > 0 && causes.length < MAX_CAUSES;
    level = level.flatMap(causesOf)
  ) {
    causes.push(...level.slice(0, MAX_CAUSES - causes.length).map(nameAndMessage));
  }
  return {
    error: errorMessageOf(reason),
    errorName: reason.name,
    ...(causes.length > 0 ? { causes } : {}),
  };
}

function causesOf(reason: unknown): readonly unknown[] {
  if (!isError(reason)) return [];
  return [...(reason.cause === undefined ? [] : [reason.cause]), ...aggregatedErrorsOf(reason)];
}

function aggregatedErrorsOf(reason: Error): readonly unknown[] {
  return reason instanceof AggregateError ? reason.errors.slice(0, MAX_CAUSES) : [];
}

function nameAndMessage(reason: unknown): string {
  return isError(reason) ? `${reason.name}: ${reason.message}` : showValue(reason);
}

/**
 * Also true for errors of another realm, such as those that Node.js modules throw into a Jest
 * sandbox.
 */
function isError(reason: unknown): reason is Error {
  return reason instanceof Error || Object.prototype.toString.call(reason) === '[object Error]';
}

/**
 * Formats any value for people. Unlike `String`, never throws, for example for an object without a
 * prototype.
 */
export function showValue(value: unknown): string {
  if (typeof value === 'function') return 'a function';
  if (typeof value !== 'object' || value === null) return String(value);
  try {
    return JSON.stringify(value) ?? UNSHOWABLE;
  } catch {
    return UNSHOWABLE; // a cycle, a bigint, or a toJSON that throws
  }
}

const UNSHOWABLE = 'an object';

/** Largest number of causes in the fields of one error, because a cause chain may be a cycle. */
const MAX_CAUSES = 8;

/** Throws an `internal` error when `condition` is false. For programming errors, not for input. */
export function assert(condition: boolean, message: string): asserts condition {
  if (!condition) throw new CloudlessError('internal', `assertion failed: ${message}`);
}

/**
 * Marks an unreachable case: a call does not compile while a member of the union has no case.
 * @throws kind `internal`.
 */
export function assertNever(value: never): never {
  throw new CloudlessError('internal', `unexpected value ${showValue(value)}`);
}
