import { Code, ConnectError } from '@connectrpc/connect';
import { CliFailure, ExitCode, type ConnectionTarget } from './failure.js';

/** The exit code for each error code. The type requires an entry for every error code. */
const EXIT_CODES: Readonly<Record<Code, number>> = {
  [Code.Canceled]: ExitCode.error,
  [Code.Unknown]: ExitCode.error,
  [Code.InvalidArgument]: ExitCode.usage,
  [Code.DeadlineExceeded]: ExitCode.timeout,
  [Code.NotFound]: ExitCode.notFound,
  [Code.AlreadyExists]: ExitCode.conflict,
  [Code.PermissionDenied]: ExitCode.error,
  [Code.ResourceExhausted]: ExitCode.noCapacity,
  [Code.FailedPrecondition]: ExitCode.conflict,
  [Code.Aborted]: ExitCode.conflict,
  [Code.OutOfRange]: ExitCode.error,
  [Code.Unimplemented]: ExitCode.error,
  [Code.Internal]: ExitCode.error,
  [Code.Unavailable]: ExitCode.unavailable,
  [Code.DataLoss]: ExitCode.error,
  [Code.Unauthenticated]: ExitCode.error,
};

/** Returns the exit code for an error code of the coordinator. */
export function toExitCode(code: Code): number {
  return EXIT_CODES[code];
}

/** Returns true for the error of a call to a coordinator. */
export function isCallError(reason: unknown): reason is ConnectError {
  return reason instanceof ConnectError;
}

/**
 * Converts the error of a call to a {@link CliFailure}. The message of a connection error names the
 * address and the settings that may be wrong.
 */
export function describeCallFailure(reason: ConnectError, target: ConnectionTarget): CliFailure {
  const exitCode = toExitCode(reason.code);
  const network = findNetworkReason(reason);
  if (network !== undefined) {
    return new CliFailure(
      ExitCode.unavailable,
      `cannot reach the coordinator at ${target.server}: ${network}. Is it running (npm start)? ` +
        `Check --server, CLOUDLESS_SERVER or ${target.context === undefined ? 'a context' : `the context '${target.context}'`} in ${target.configPath}`,
      { cause: reason },
    );
  }
  if (reason.code === Code.DeadlineExceeded) {
    return new CliFailure(
      exitCode,
      `the coordinator at ${target.server} did not answer in time: ${reason.rawMessage}. Allow more time with --timeout`,
      {
        cause: reason,
      },
    );
  }
  return new CliFailure(exitCode, `${reason.rawMessage} (${toCodeName(reason.code)})`, {
    cause: reason,
  });
}

/** Returns the name of a code as gRPC spells it: `NOT_FOUND` for `Code.NotFound`. */
function toCodeName(code: Code): string {
  return Code[code].replaceAll(/(?<=[a-z])(?=[A-Z])/g, '_').toUpperCase();
}

/**
 * Returns why the connection failed, found by the Node error code in the chain of causes; undefined
 * when the error has no such cause, for example when a coordinator answered.
 */
function findNetworkReason(reason: ConnectError): string | undefined {
  let cause: unknown = reason.cause;
  for (let link = 0; link < MAX_CAUSES && typeof cause === 'object' && cause !== null; link += 1) {
    const networkReason = 'code' in cause ? NETWORK_REASONS[String(cause.code)] : undefined;
    if (networkReason !== undefined) return networkReason;
    cause = 'cause' in cause ? cause.cause : undefined;
  }
  return undefined;
}

const NETWORK_REASONS: Readonly<Record<string, string>> = {
  ECONNREFUSED: 'connection refused',
  ENOTFOUND: 'no such host',
  EAI_AGAIN: 'the host name cannot be resolved at the moment',
  ETIMEDOUT: 'connection timed out',
  EHOSTUNREACH: 'no route to the host',
  ENETUNREACH: 'network unreachable',
  ECONNRESET: 'connection closed',
  EPIPE: 'connection closed',
  ERR_HTTP2_ERROR: 'the server does not speak HTTP/2',
  ERR_HTTP2_SESSION_ERROR: 'connection closed',
  ERR_HTTP2_STREAM_CANCEL: 'connection closed',
  ERR_SSL_WRONG_VERSION_NUMBER: 'the server does not speak TLS; use http:// instead of https://',
  DEPTH_ZERO_SELF_SIGNED_CERT: 'the certificate of the server is not trusted',
  SELF_SIGNED_CERT_IN_CHAIN: 'the certificate of the server is not trusted',
  UNABLE_TO_VERIFY_LEAF_SIGNATURE: 'the certificate of the server is not trusted',
};

/** Number of causes that are examined. A chain of causes may be a cycle. */
const MAX_CAUSES = 8;

/**
 * Returns true when a later attempt of the same call may succeed: the coordinator died, could not be
 * reached, or answered UNAVAILABLE, for example because it is not the leader.
 */
export function isTransient(reason: unknown): boolean {
  if (!(reason instanceof ConnectError)) return false;
  return (
    isServerReset(reason) ||
    reason.code === Code.Unavailable ||
    findNetworkReason(reason) !== undefined
  );
}

/**
 * Returns true when the server died during the call: Node then reports CANCEL for the stream. This
 * error shows that the server had accepted the call. A cancellation by the caller has another
 * message.
 */
export function isServerReset(reason: unknown): boolean {
  return (
    reason instanceof ConnectError &&
    reason.code === Code.Canceled &&
    reason.rawMessage.startsWith('http/2 stream closed')
  );
}
