import { CloudlessError, type ErrorKind } from '@cloudless/base';
import { Code, ConnectError } from '@connectrpc/connect';

const kinds = new Map<Code, ErrorKind>([
  [Code.InvalidArgument, 'invalid'],
  [Code.NotFound, 'notFound'],
  [Code.AlreadyExists, 'exists'],
  [Code.PermissionDenied, 'denied'],
  [Code.FailedPrecondition, 'precondition'],
  [Code.ResourceExhausted, 'exhausted'],
  [Code.Unavailable, 'unavailable'],
  [Code.Unauthenticated, 'unauthenticated'],
  [Code.Unimplemented, 'unimplemented'],
  // What was asked may have happened all the same, and may work the next time.
  [Code.DeadlineExceeded, 'unavailable'],
  [Code.Canceled, 'unavailable'],
  [Code.Aborted, 'unavailable'],
]);

/**
 * What a failed call to a container runtime means: the runtime's own text, and a kind to act on.
 */
export function fromCriError(
  reason: unknown,
  where: { readonly call: string; readonly socketPath: string },
): CloudlessError {
  if (reason instanceof CloudlessError) return reason;
  const error = ConnectError.from(reason);
  const { call, socketPath } = where;
  const failed = (kind: ErrorKind, message: string): CloudlessError =>
    new CloudlessError(kind, message, { cause: reason });
  const absent = systemCodeOf(reason, (code) => ABSENT.has(code));
  if (absent !== undefined) {
    return failed(
      'unavailable',
      `no container runtime answers at ${socketPath} (${absent}): start it, or set the path of its socket`,
    );
  }
  if (error.code === Code.DeadlineExceeded) {
    return failed(
      'unavailable',
      `the container runtime at ${socketPath} did not answer ${call} in time: see its log`,
    );
  }
  if (error.code === Code.Unimplemented) {
    return failed(
      'unimplemented',
      `the container runtime at ${socketPath} does not know ${call}: ${error.rawMessage}`,
    );
  }
  const gone =
    STARTING.test(error.rawMessage) ||
    systemCodeOf(reason, (code) => BROKEN.test(code)) !== undefined;
  const kind = gone ? 'unavailable' : (kinds.get(error.code) ?? 'internal');
  return failed(
    kind,
    kind === 'unavailable'
      ? `the container runtime at ${socketPath} went away: ${error.rawMessage}`
      : error.rawMessage,
  );
}

/** What containerd says, with no code, before it has found its containers again. */
const STARTING = /server is not initialized yet/;

/** The system's code of a failure, or of one behind it, that fits. */
function systemCodeOf(reason: unknown, fits: (code: string) => boolean): string | undefined {
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
/** Nobody listens at the socket. */
const ABSENT = new Set(['ENOENT', 'ECONNREFUSED', 'EACCES', 'EPERM', 'ENOTSOCK']);
/**
 * Somebody did, and the connection broke: how Node calls it depends on how far the call had come.
 */
const BROKEN = /^(?:ECONNRESET|EPIPE|ERR_HTTP2_.*|ERR_STREAM_.*)$/;
