import type { ErrorKind } from './error-kind.js';

/**
 * The causes of errors, for programs, each with the kind of the error. The names are the values of
 * the enum `cloudless.api.ErrorReason`, whose comments in `proto/cloudless/api/error.proto`
 * describe them; a spec of `@cloudless/api` compares the two.
 */
export const ERROR_REASON_KINDS = {
  INVALID_INPUT: 'invalid',
  NOT_FOUND: 'notFound',
  ALREADY_EXISTS: 'exists',
  PERMISSION_DENIED: 'denied',
  WRONG_STATE: 'precondition',
  CONCURRENT_CHANGE: 'conflict',
  LIMIT_REACHED: 'exhausted',
  TEMPORARILY_UNAVAILABLE: 'unavailable',
  UNAUTHENTICATED: 'unauthenticated',
  NOT_SUPPORTED: 'unimplemented',
  DEADLINE_EXCEEDED: 'deadline',
  HISTORY_COMPACTED: 'compacted',
  INTERNAL: 'internal',
  MALFORMED_REQUEST: 'invalid',
  COMMAND_NOT_STARTED: 'invalid',
  CONFIG_NOT_FOUND: 'notFound',
  WORKLOAD_NOT_FOUND: 'notFound',
  REPLICA_NOT_FOUND: 'notFound',
  CONTAINER_NOT_FOUND: 'notFound',
  NODE_NOT_FOUND: 'notFound',
  VERSION_NOT_FOUND: 'notFound',
  PLAN_NOT_FOUND: 'notFound',
  EVENT_NOT_FOUND: 'notFound',
  USER_NOT_FOUND: 'notFound',
  TOKEN_NOT_FOUND: 'notFound',
  SECRET_NOT_FOUND: 'notFound',
  WORKLOAD_EXISTS: 'exists',
  NODE_EXISTS: 'exists',
  USER_EXISTS: 'exists',
  WORKLOAD_DELETING: 'precondition',
  ROLLOUT_PHASE: 'precondition',
  NO_EARLIER_VERSION: 'precondition',
  REPLICA_NOT_RUNNING: 'precondition',
  NODE_NOT_LOST: 'precondition',
  NODE_IN_USE: 'precondition',
  WRONG_CLUSTER: 'precondition',
  VERSION_SKEW: 'precondition',
  PLAN_EXECUTED: 'precondition',
  STORE_ROLLED_BACK: 'precondition',
  NO_IDENTITIES: 'precondition',
  LAST_ADMIN: 'precondition',
  MISSING_REFERENCE: 'precondition',
  STILL_USED: 'precondition',
  NO_SECRETS_KEY: 'precondition',
  SECRET_EXPIRED: 'precondition',
  SECRET_IMMUTABLE: 'precondition',
  GENERATION_CONFLICT: 'conflict',
  PLAN_STALE: 'conflict',
  NO_CAPACITY: 'exhausted',
  STORE_FULL: 'exhausted',
  RATE_LIMITED: 'exhausted',
  SERVER_OVERLOADED: 'exhausted',
  TOO_MANY_STREAMS: 'exhausted',
  REQUEST_TOO_LARGE: 'exhausted',
  RESPONSE_TOO_LARGE: 'exhausted',
  SLOW_READER: 'exhausted',
  LEADERSHIP_LOST: 'unavailable',
  STORE_UNAVAILABLE: 'unavailable',
  SHUTTING_DOWN: 'unavailable',
  NODE_UNREACHABLE: 'unavailable',
  STREAM_INTERRUPTED: 'unavailable',
  NODE_LOST: 'unavailable',
  DRAIN_FAILED: 'deadline',
  REPLICA_FAILED: 'precondition',
  IMAGE_PULL_FAILED: 'precondition',
  ROLLOUT_FAILED: 'precondition',
  INVALID_TOKEN: 'unauthenticated',
  CERTIFICATE_INVALID: 'unauthenticated',
  CERTIFICATE_EXPIRED: 'unauthenticated',
  CERTIFICATE_NOT_YET_VALID: 'unauthenticated',
  CREDENTIAL_REVOKED: 'unauthenticated',
  NODE_BANNED: 'denied',
  POLICY_DENIED: 'denied',
} as const satisfies Readonly<Record<string, ErrorKind>>;

/** The cause of an error, for programs: the name of a value of `cloudless.api.ErrorReason`. */
export type ErrorReason = keyof typeof ERROR_REASON_KINDS;

/** The reason of an error that is created with only a kind. */
export const DEFAULT_REASONS: Readonly<Record<ErrorKind, ErrorReason>> = {
  invalid: 'INVALID_INPUT',
  notFound: 'NOT_FOUND',
  exists: 'ALREADY_EXISTS',
  denied: 'PERMISSION_DENIED',
  precondition: 'WRONG_STATE',
  conflict: 'CONCURRENT_CHANGE',
  exhausted: 'LIMIT_REACHED',
  unavailable: 'TEMPORARILY_UNAVAILABLE',
  unauthenticated: 'UNAUTHENTICATED',
  unimplemented: 'NOT_SUPPORTED',
  deadline: 'DEADLINE_EXCEEDED',
  compacted: 'HISTORY_COMPACTED',
  internal: 'INTERNAL',
};

/** Returns true for the name of a known reason. */
export function isErrorReason(name: string): name is ErrorReason {
  return Object.hasOwn(ERROR_REASON_KINDS, name);
}
