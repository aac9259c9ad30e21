import { Code, ConnectError, type Interceptor } from '@connectrpc/connect';
import { CloudlessError, ERROR_REASON_KINDS, StoppedError, type ErrorKind } from '@cloudless/base';
import { createErrorDetails, readErrorDetails } from './error-details.js';
import { isRefusedStream } from './refused-stream.js';

/** The gRPC code of each error kind. A new kind without a code does not compile. */
const codeByKind: Record<ErrorKind, Code> = {
  invalid: Code.InvalidArgument,
  notFound: Code.NotFound,
  exists: Code.AlreadyExists,
  denied: Code.PermissionDenied,
  precondition: Code.FailedPrecondition,
  conflict: Code.Aborted,
  exhausted: Code.ResourceExhausted,
  unavailable: Code.Unavailable,
  unauthenticated: Code.Unauthenticated,
  unimplemented: Code.Unimplemented,
  deadline: Code.DeadlineExceeded,
  compacted: Code.OutOfRange,
  internal: Code.Internal,
};

const kindByCode = new Map<Code, ErrorKind>(
  Object.entries(codeByKind).map(([kind, code]) => [code, kind as ErrorKind]),
);

/** Returns the gRPC code of an error kind. */
export function toCode(kind: ErrorKind): Code {
  return codeByKind[kind];
}

/** Returns the error kind of a gRPC code; `internal` for a code that this API never sends. */
export function toErrorKind(code: Code): ErrorKind {
  return kindByCode.get(code) ?? 'internal';
}

/** Returns the name of a code in lower case: `already_exists`. */
export function formatCode(code: Code): string {
  return (Code[code] ?? 'Unknown')
    .replaceAll(/(?<=[a-z])[A-Z]/g, (letter) => `_${letter}`)
    .toLowerCase();
}

/**
 * Converts a failure to the error that the client receives:
 * - a `ConnectError` is returned unchanged;
 * - a `CloudlessError` gets the code of its kind, and keeps its message unless the kind is
 *   `internal`;
 * - an aborted wait becomes the `ConnectError` that aborted its signal, such as a passed deadline,
 *   or else UNAVAILABLE;
 * - everything else becomes INTERNAL with the message `internal error`.
 *
 * Every error but a given `ConnectError` has the details of {@link createErrorDetails}. The `cause`
 * of the result is the failure. It is never sent to the client.
 */
export function toConnectError(reason: unknown): ConnectError {
  if (reason instanceof ConnectError) return reason;
  if (reason instanceof CloudlessError && reason.kind !== 'internal') return encode(reason, reason);
  if (isStopped(reason)) {
    if (reason.cause instanceof ConnectError) return reason.cause;
    const message = 'the call was stopped before it completed';
    return encode(new CloudlessError('unavailable', message), reason);
  }
  return encode(new CloudlessError('internal', 'internal error'), reason);
}

function encode(error: CloudlessError, cause: unknown): ConnectError {
  const encoded = new ConnectError(
    error.message,
    codeByKind[error.kind],
    undefined,
    undefined,
    cause,
  );
  encoded.details = createErrorDetails(error);
  return encoded;
}

/**
 * Returns true for the error of a wait whose signal was aborted: `StoppedError` from `sleep`,
 * `AbortError` from functions of Node.
 */
function isStopped(reason: unknown): reason is Error {
  return (
    reason instanceof StoppedError || (reason instanceof Error && reason.name === 'AbortError')
  );
}

/**
 * Converts the failure of a call to a `CloudlessError`, for clients: with the kind of its gRPC code,
 * the message of the server, and the reason, metadata and retry delay of the details. A call that a
 * closing server did not begin fails as `unavailable`, although the transport of
 * `@connectrpc/connect-node` says INTERNAL. A `CloudlessError` is returned unchanged.
 * @param reason - Any thrown value.
 */
export function fromConnectError(reason: unknown): CloudlessError {
  if (reason instanceof CloudlessError) return reason;
  if (isRefusedStream(reason))
    return new CloudlessError(
      'unavailable',
      'the server ended the connection before it began the call; try again',
      { cause: reason },
    );
  const error = ConnectError.from(reason);
  const kind = toErrorKind(error.code);
  const details = readErrorDetails(error);
  const isOfKind = details.reason !== undefined && ERROR_REASON_KINDS[details.reason] === kind;
  return new CloudlessError(isOfKind ? details.reason : kind, error.rawMessage, {
    cause: reason,
    retryAfterMs: details.retryAfterMs,
    metadata: Object.keys(details.metadata).length > 0 ? details.metadata : undefined,
  });
}

/**
 * Creates a server interceptor that converts every failure of a handler by {@link toConnectError},
 * also failures in the middle of a stream.
 * @param onInternal - Called for each failure that the client receives as `internal error`, with
 *   the full name of the RPC, so that the server can log the cause.
 */
export function createErrorInterceptor(
  onInternal: (rpc: string, reason: unknown) => void,
): Interceptor {
  return (next) => async (request) => {
    const rpc = `${request.service.typeName}/${request.method.name}`;
    const convert = (reason: unknown): ConnectError => {
      const error = toConnectError(reason);
      if (error.code === Code.Internal) onInternal(rpc, error.cause ?? reason);
      return error;
    };
    try {
      const response = await next(request);
      return response.stream
        ? { ...response, message: convertFailures(response.message, convert) }
        : response;
    } catch (reason) {
      throw convert(reason);
    }
  };
}

async function* convertFailures<Item>(
  items: AsyncIterable<Item>,
  convert: (reason: unknown) => ConnectError,
): AsyncGenerator<Item> {
  try {
    yield* items;
  } catch (reason) {
    throw convert(reason);
  }
}
