import { Code, ConnectError } from '@connectrpc/connect';
import { CloudlessError, type ErrorKind } from '@cloudless/base';

/** Kinds of errors by the status code of the runtime. Other codes become `internal`. */
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
  // After these codes the call may have had its effect all the same. A retry may succeed.
  [Code.DeadlineExceeded, 'unavailable'],
  [Code.Canceled, 'unavailable'],
  [Code.Aborted, 'unavailable'],
]);

/**
 * Converts the error of a call to a container runtime. The message contains the runtime's own text,
 * and the kind determines how callers react: `unavailable` means that a retry may succeed.
 * @param where - Name of the call and path of the socket, for the message.
 * @returns The error itself when it is already a {@link CloudlessError}.
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
  const connectCode = findSystemCode(reason, (code) => CONNECT_FAILURES.has(code));
  if (connectCode !== undefined && NO_PERMISSION.has(connectCode)) {
    return createError(
      'unavailable',
      `this process may not open the socket ${socketPath} of the container runtime (${connectCode}): run the agent as root`,
    );
  }
  if (connectCode !== undefined) {
    return createError(
      'unavailable',
      `no container runtime answers at ${socketPath} (${connectCode}): start it, or set the path of its socket`,
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
  const isUnreachable =
    STARTING.test(error.rawMessage) ||
    findSystemCode(reason, (code) => CONNECTION_FAILURES.test(code)) !== undefined;
  const kind = isUnreachable ? 'unavailable' : (KINDS.get(error.code) ?? 'internal');
  return createError(
    kind,
    kind === 'unavailable'
      ? `the container runtime at ${socketPath} is unavailable: ${error.rawMessage}`
      : error.rawMessage,
  );
}

/**
 * Message with which containerd refuses calls, with status code `Unknown`, until containerd has
 * restored its containers after a start.
 */
const STARTING = /server is not initialized yet/;

/** Returns the first matching system error code in the cause chain; undefined when none matches. */
function findSystemCode(reason: unknown, matches: (code: string) => boolean): string | undefined {
  for (
    let next: unknown = reason, depth = 0;
    next !== undefined && depth < MAX_CAUSES;
    depth += 1
  ) {
    const { code, cause } = next as { code?: unknown; cause?: unknown };
    if (typeof code === 'string' && matches(code)) return code;
    if (typeof cause !== 'object' || cause === null) return undefined;
    next = cause;
  }
  return undefined;
}

/** Longest cause chain that is searched: a chain may contain a cycle. */
const MAX_CAUSES = 8;
/**
 * System errors of a failed connect: no process listens at the path, the path is no socket, or this
 * process may not open it.
 */
const CONNECT_FAILURES = new Set(['ENOENT', 'ECONNREFUSED', 'EACCES', 'EPERM', 'ENOTSOCK']);
/** The {@link CONNECT_FAILURES} of a process that may not open the socket. */
const NO_PERMISSION = new Set(['EACCES', 'EPERM']);
/**
 * System errors of a connection that broke. The code that Node.js reports depends on the progress
 * of the call.
 */
const CONNECTION_FAILURES = /^(?:ECONNRESET|EPIPE|ERR_HTTP2_.*|ERR_STREAM_.*)$/;
