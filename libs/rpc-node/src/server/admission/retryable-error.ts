import { ConnectError, type Code } from '@connectrpc/connect';

/** Delay in milliseconds after which a client should retry. */
export const RETRY_AFTER_HEADER = 'retry-after-ms';

/**
 * Creates an error that tells the client when to retry, in three ways: `retry-after-ms` (a header
 * or trailer that every Connect client reads from the error's metadata), `retry-after` in whole
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
