import { Code, ConnectError, type Interceptor } from '@connectrpc/connect';
import { CloudlessError, StoppedError, type ErrorKind } from '@cloudless/base';

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

/**
 * Returns the error kind of a gRPC code, for clients. Codes that this API never sends become
 * `internal`.
 */
export function toErrorKind(code: Code): ErrorKind {
  return kindByCode.get(code) ?? 'internal';
}

/** Formats a code in lower case: `already_exists`. */
export function formatCode(code: Code): string {
  return (Code[code] ?? 'Unknown')
    .replaceAll(/(?<=[a-z])[A-Z]/g, (letter) => `_${letter}`)
    .toLowerCase();
}

/**
 * Converts a failure to the error that the client receives. A `ConnectError` passes through, a
 * `CloudlessError` gets the code of its kind, and everything else becomes `internal error` with its
 * cause only on this side. A stopped wait becomes the reason of its signal, such as a passed
 * deadline.
 */
export function toConnectError(reason: unknown): ConnectError {
  if (reason instanceof ConnectError) return reason;
  if (reason instanceof CloudlessError && reason.kind !== 'internal') {
    return new ConnectError(reason.message, codeByKind[reason.kind], undefined, undefined, reason);
  }
  if (isStopped(reason)) {
    if (reason.cause instanceof ConnectError) return reason.cause;
    return new ConnectError(
      'the call was stopped before it completed',
      Code.Unavailable,
      undefined,
      undefined,
      reason,
    );
  }
  return new ConnectError('internal error', Code.Internal, undefined, undefined, reason);
}

/**
 * `sleep` throws a StoppedError when its signal is aborted; Node's own functions throw an
 * `AbortError`.
 */
function isStopped(reason: unknown): reason is Error {
  return (
    reason instanceof StoppedError || (reason instanceof Error && reason.name === 'AbortError')
  );
}

/**
 * Converts the failure of a call to a `CloudlessError` with the kind of its code and the message of
 * the server.
 */
export function fromConnectError(reason: unknown): CloudlessError {
  if (reason instanceof CloudlessError) return reason;
  const error = ConnectError.from(reason);
  return new CloudlessError(toErrorKind(error.code), error.rawMessage, { cause: reason });
}

/**
 * Creates a server interceptor that converts every failure to a `ConnectError`, also failures in
 * the middle of a stream.
 * @param onInternal - Called for each failure whose cause is hidden from the client.
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
