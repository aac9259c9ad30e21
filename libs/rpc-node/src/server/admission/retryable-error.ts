import type { ConnectError } from '@connectrpc/connect';
import { toConnectError } from '@cloudless/api';
import { CloudlessError, type ErrorReason } from '@cloudless/base';

/** Header with the delay in milliseconds after which a client should retry. */
export const RETRY_AFTER_HEADER = 'retry-after-ms';

/**
 * Creates an error with the time after which the client should retry: in `google.rpc.RetryInfo`,
 * and in three headers: `retry-after-ms` (in the metadata of the error, for Connect clients),
 * `retry-after` in whole seconds for plain HTTP (RFC 9110, section 10.2.3), and
 * `grpc-retry-pushback-ms` for gRPC clients with a retry policy (gRFC A6).
 */
export function createRetryableError(
  reason: ErrorReason,
  message: string,
  retryAfterMs: number,
): ConnectError {
  const error = createError(reason, message, retryAfterMs);
  error.metadata.set(RETRY_AFTER_HEADER, String(retryAfterMs));
  error.metadata.set('retry-after', String(Math.ceil(retryAfterMs / 1_000)));
  error.metadata.set('grpc-retry-pushback-ms', String(retryAfterMs));
  return error;
}

/** Creates an error of the server itself, with its details. */
export function createError(
  reason: ErrorReason,
  message: string,
  retryAfterMs?: number,
): ConnectError {
  return toConnectError(new CloudlessError(reason, message, { retryAfterMs }));
}
