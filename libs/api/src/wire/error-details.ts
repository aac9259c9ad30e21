import { create } from '@bufbuild/protobuf';
import { durationFromMs, durationMs } from '@bufbuild/protobuf/wkt';
import type { ConnectError } from '@connectrpc/connect';
import {
  InvalidInputError,
  isErrorReason,
  type CloudlessError,
  type ErrorReason,
  type Violation,
} from '@cloudless/base';
import {
  BadRequestSchema,
  ErrorInfoSchema,
  RetryInfoSchema,
} from '../gen/google/rpc/error_details_pb.js';
import { ErrorReason as ReasonEnum } from '../gen/cloudless/api/error_pb.js';
import { PolicyDenialSchema } from '../gen/cloudless/api/policy_pb.js';
import { PolicyDeniedError } from './policy-denied-error.js';

/** `domain` of every `google.rpc.ErrorInfo` of this API. */
export const ERROR_DOMAIN = 'cloudless.api';

/** Details of an error in the form that `ConnectError` sends. */
export type OutgoingDetails = ConnectError['details'];

/**
 * Delay in milliseconds after which a client should repeat a call that failed for this reason. A
 * reason that is absent here has no delay: a retry does not help, or needs a changed request.
 */
const RETRY_AFTER_MS: Partial<Readonly<Record<ErrorReason, number>>> = {
  TEMPORARILY_UNAVAILABLE: 1_000,
  RATE_LIMITED: 1_000,
  SERVER_OVERLOADED: 2_000,
  LEADERSHIP_LOST: 1_000,
  // A supervisor starts the coordinator or the agent again, which takes seconds.
  STORE_UNAVAILABLE: 5_000,
  SHUTTING_DOWN: 2_000,
  NODE_UNREACHABLE: 2_000,
  STREAM_INTERRUPTED: 1_000,
};

/**
 * Largest size of the field violations in one error, in bytes. gRPC clients of the C core, such as
 * Python, refuse trailers of more than 8 KiB, which contain the details in base64 and the message.
 */
const MAX_VIOLATION_BYTES = 2_048;
/** Largest number of characters of the field or the message of one violation. */
const MAX_TEXT_LENGTH = 300;
const encoder = new TextEncoder();

/**
 * Returns the details of an error: always `google.rpc.ErrorInfo`; `google.rpc.BadRequest` when
 * fields are invalid; `cloudless.api.PolicyDenial` when policies deny a workload;
 * `google.rpc.RetryInfo` when a retry makes sense.
 */
export function createErrorDetails(error: CloudlessError): OutgoingDetails {
  const { reason, metadata = {}, retryAfterMs = RETRY_AFTER_MS[reason] } = error;
  const info = {
    desc: ErrorInfoSchema,
    value: create(ErrorInfoSchema, { reason, domain: ERROR_DOMAIN, metadata: { ...metadata } }),
  };
  const details: OutgoingDetails = [info];
  if (error instanceof InvalidInputError) {
    const fieldViolations = takeViolations(error.violations).map(({ field, message }) => ({
      field,
      description: message,
    }));
    details.push({ desc: BadRequestSchema, value: create(BadRequestSchema, { fieldViolations }) });
  }
  if (error instanceof PolicyDeniedError)
    details.push({ desc: PolicyDenialSchema, value: error.denial });
  if (retryAfterMs !== undefined) {
    const retryDelay = durationFromMs(retryAfterMs);
    details.push({ desc: RetryInfoSchema, value: create(RetryInfoSchema, { retryDelay }) });
  }
  return details;
}

/**
 * Returns the first violations that fit into {@link MAX_VIOLATION_BYTES}, and at least one. Cuts
 * long texts.
 */
function takeViolations(all: readonly Violation[]): readonly Violation[] {
  let bytes = 0;
  const violations = all.map(({ field, message }) => ({
    field: cut(field),
    message: cut(message),
  }));
  const end = violations.findIndex(({ field, message }, index) => {
    bytes += encoder.encode(field + message).byteLength;
    return index > 0 && bytes > MAX_VIOLATION_BYTES;
  });
  return end === -1 ? violations : violations.slice(0, end);
}

function cut(text: string): string {
  return text.length <= MAX_TEXT_LENGTH ? text : `${text.slice(0, MAX_TEXT_LENGTH)}…`;
}

/** What the details of a received error say. */
export interface ErrorDetails {
  /** Undefined when the error has no reason, or one that this version does not know. */
  readonly reason?: ErrorReason;
  /** Values for programs; empty when there are none. */
  readonly metadata: Readonly<Record<string, string>>;
  /** The invalid fields; empty when the error names none. */
  readonly violations: readonly Violation[];
  /** Delay in milliseconds after which the server asks to retry. */
  readonly retryAfterMs?: number;
}

/** Reads the details of an error that a client received. Ignores details of other types. */
export function readErrorDetails(error: ConnectError): ErrorDetails {
  const info = error
    .findDetails(ErrorInfoSchema)
    .find(({ domain, reason }) => domain === ERROR_DOMAIN && isErrorReason(reason));
  const [retry] = error.findDetails(RetryInfoSchema);
  return {
    ...(info === undefined ? {} : { reason: info.reason as ErrorReason }),
    metadata: info?.metadata ?? {},
    violations: error
      .findDetails(BadRequestSchema)
      .flatMap(({ fieldViolations }) => fieldViolations)
      .map(({ field, description }) => ({ field, message: description })),
    ...(retry?.retryDelay === undefined ? {} : { retryAfterMs: durationMs(retry.retryDelay) }),
  };
}

/** Converts a reason to the enum of the API, for example for `Event.error_reason`. */
export function toReasonEnum(reason: ErrorReason): ReasonEnum {
  return ReasonEnum[reason];
}
