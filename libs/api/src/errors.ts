import { CloudlessError, StoppedError, type ErrorKind } from '@cloudless/base';
import { Code, ConnectError, type Interceptor } from '@connectrpc/connect';

const codeOf: Record<ErrorKind, Code> = {
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

const kindOf = new Map<Code, ErrorKind>(
  Object.entries(codeOf).map(([kind, code]) => [code, kind as ErrorKind]),
);

/** The wire code of a kind of failure. */
export function codeOfKind(kind: ErrorKind): Code {
  return codeOf[kind];
}

/** The kind of a wire code, for clients. Codes this API never sends are `internal`. */
export function kindOfCode(code: Code): ErrorKind {
  return kindOf.get(code) ?? 'internal';
}

/** A code as texts show it: `already_exists`. */
export function codeName(code: Code): string {
  return (Code[code] ?? 'Unknown')
    .replaceAll(/(?<=[a-z])[A-Z]/g, (letter) => `_${letter}`)
    .toLowerCase();
}

/**
 * What goes to the caller: a `ConnectError` passes, our kinds get their code, the rest is `internal
 * error` and keeps its cause on this side. A wait that was stopped gives the reason of its signal,
 * as that of a call whose deadline has passed.
 */
export function toConnectError(reason: unknown): ConnectError {
  if (reason instanceof ConnectError) return reason;
  if (reason instanceof CloudlessError && reason.kind !== 'internal') {
    return new ConnectError(reason.message, codeOf[reason.kind], undefined, undefined, reason);
  }
  if (isStopped(reason)) {
    if (reason.cause instanceof ConnectError) return reason.cause;
    return new ConnectError(
      'stopped before it was done',
      Code.Unavailable,
      undefined,
      undefined,
      reason,
    );
  }
  return new ConnectError('internal error', Code.Internal, undefined, undefined, reason);
}

/** `sleep` ends so when its signal is aborted, and Node's own calls end with an `AbortError`. */
function isStopped(reason: unknown): reason is Error {
  return (
    reason instanceof StoppedError || (reason instanceof Error && reason.name === 'AbortError')
  );
}

/** What a client makes of a failed call: one of our kinds with the server's message. */
export function fromConnectError(reason: unknown): CloudlessError {
  if (reason instanceof CloudlessError) return reason;
  const error = ConnectError.from(reason);
  return new CloudlessError(kindOfCode(error.code), error.rawMessage, { cause: reason });
}

/**
 * Server interceptor: every failure leaves as a `ConnectError`, also one while a stream is read.
 * @param onInternal - Told of each failure whose cause the caller does not see.
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
