import { ConnectError, type Code } from '@connectrpc/connect';

/** Header with the delay in milliseconds after which a client should retry. */
export const RETRY_AFTER_HEADER = 'retry-after-ms';

/**
 * Creates an error with the time after which the client should retry, in three headers:
 * `retry-after-ms` (in the metadata of the error, for Connect clients), `retry-after` in whole
 * seconds for plain HTTP (RFC 9110, section 10.2.3), and `grpc-retry-pushback-ms` for gRPC clients
 * with a retry policy (gRFC A6).
 */
export function createRetryableError(
  code: Code,
  message: string,
  retryAfterMs: number,
): ConnectError {
  return new ConnectError(message, code, {
    [RETRY_AFTER_HEADER]: String(retryAfterMs),
    'retry-after': String(Math.ceil(retryAfterMs / 1_000)),
    'grpc-retry-pushback-ms': String(retryAfterMs),
  });
}
