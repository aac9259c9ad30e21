import { Code, ConnectError } from '@connectrpc/connect';

/** Exit codes of cloudlessctl. They are part of the published interface; scripts depend on them. */
export const ExitCode = {
  ok: 0,
  error: 1,
  /**
   * The command line, a manifest or the configuration is invalid, or the coordinator refused one of
   * its values.
   */
  usage: 2,
  notFound: 3,
  /**
   * The state of the cluster does not allow the request: the object exists already, has changed, or
   * is in the wrong phase.
   */
  conflict: 4,
  unavailable: 5,
  timeout: 6,
  noCapacity: 7,
  rolloutFailed: 8,
  /** Ctrl-C: 128 + SIGINT, as in shells. */
  interrupted: 130,
} as const;

/**
 * An error with its own exit code. The message is printed to the user and may have several lines.
 */
export class CliFailure extends Error {
  override readonly name = 'CliFailure';
  constructor(
    readonly exitCode: number,
    message: string,
    options?: { readonly cause?: unknown },
  ) {
    super(message, options);
  }
}

/** Creates a failure with exit code 2. */
export function createUsageFailure(message: string): CliFailure {
  return new CliFailure(ExitCode.usage, message);
}

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

/** The coordinator address of a command, for error messages. */
export interface ConnectionTarget {
  readonly server: string;
  /** The context in use; absent when the configuration has none. */
  readonly context?: string;
  readonly configPath: string;
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
