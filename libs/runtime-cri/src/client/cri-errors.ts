import { Code, ConnectError } from '@connectrpc/connect';
import { CloudlessError, type ErrorKind } from '@cloudless/base';

const KINDS = new Map<Code, ErrorKind>([
  [Code.InvalidArgument, 'invalid'],
  [Code.NotFound, 'notFound'],
  [Code.AlreadyExists, 'exists'],
  [Code.PermissionDenied, 'denied'],
  [Code.FailedPrecondition, 'precondition'],
  [Code.ResourceExhausted, 'exhausted'],
  [Code.Unavailable, 'unavailable'],
  [Code.Unauthenticated, 'unauthenticated'],
  [Code.Unimplemented, 'unimplemented'],
  // The call may have had its effect all the same, and may succeed the next time.
  [Code.DeadlineExceeded, 'unavailable'],
  [Code.Canceled, 'unavailable'],
  [Code.Aborted, 'unavailable'],
]);

/**
 * Converts the error of a call to a container runtime. The message is the runtime's own text; the
 * kind tells how to react.
 */
export function fromCriError(
  reason: unknown,
  where: { readonly call: string; readonly socketPath: string },
): CloudlessError {
  if (reason instanceof CloudlessError) return reason;
  const error = ConnectError.from(reason);
  const { call, socketPath } = where;
  const createError = (kind: ErrorKind, message: string): CloudlessError =>
    new CloudlessError(kind, message, { cause: reason });
  const absent = findSystemCode(reason, (code) => NOT_LISTENING.has(code));
  if (absent !== undefined) {
    return createError(
      'unavailable',
      `no container runtime answers at ${socketPath} (${absent}): start it, or set the path of its socket`,
    );
  }
  if (error.code === Code.DeadlineExceeded) {
    return createError(
      'unavailable',
      `the container runtime at ${socketPath} did not answer ${call} in time: see its log`,
    );
  }
  if (error.code === Code.Unimplemented) {
    return createError(
      'unimplemented',
      `the container runtime at ${socketPath} does not know ${call}: ${error.rawMessage}`,
    );
  }
  const gone =
    STARTING.test(error.rawMessage) ||
    findSystemCode(reason, (code) => BROKEN.test(code)) !== undefined;
  const kind = gone ? 'unavailable' : (KINDS.get(error.code) ?? 'internal');
  return createError(
    kind,
    kind === 'unavailable'
      ? `the container runtime at ${socketPath} is unavailable: ${error.rawMessage}`
      : error.rawMessage,
  );
}

/**
 * Message of containerd, without a status code, until it has restored its containers after a start.
 */
const STARTING = /server is not initialized yet/;

/** Finds the first system error code in the cause chain that matches. */
function findSystemCode(reason: unknown, fits: (code: string) => boolean): string | undefined {
  for (
    let next: unknown = reason, depth = 0;
    next !== undefined && depth < MAX_CAUSES;
    depth += 1
  ) {
    const { code, cause } = next as { code?: unknown; cause?: unknown };
    if (typeof code === 'string' && fits(code)) return code;
    if (typeof cause !== 'object' || cause === null) return undefined;
    next = cause;
  }
  return undefined;
}

const MAX_CAUSES = 8;
/** System errors that mean: no process listens at the socket. */
const NOT_LISTENING = new Set(['ENOENT', 'ECONNREFUSED', 'EACCES', 'EPERM', 'ENOTSOCK']);
/**
 * System errors that mean: the connection broke. Which of them Node.js reports depends on the
 * progress of the call.
 */
const BROKEN = /^(?:ECONNRESET|EPIPE|ERR_HTTP2_.*|ERR_STREAM_.*)$/;
