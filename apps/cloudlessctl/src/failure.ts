import { Code, ConnectError } from '@connectrpc/connect';

/** What the process ends with. Published: scripts depend on it. */
export const ExitCode = {
  ok: 0,
  error: 1,
  /**
   * The command line, a manifest or the configuration is wrong, or the coordinator refused a value
   * in it.
   */
  usage: 2,
  notFound: 3,
  /**
   * The cluster is in another state than the request needs: it exists already, it changed
   * meanwhile, or it is the wrong moment.
   */
  conflict: 4,
  unavailable: 5,
  timeout: 6,
  noCapacity: 7,
  rolloutFailed: 8,
  /** Ctrl-C, as shells count it: 128 + SIGINT. */
  interrupted: 130,
} as const;

/**
 * A failure of a command that has its own exit code. The message is for people and may have several
 * lines.
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

/** The command line is wrong. */
export function usageFailure(message: string): CliFailure {
  return new CliFailure(ExitCode.usage, message);
}

/** A new code does not compile until it has an exit code. */
const exitCodes: Readonly<Record<Code, number>> = {
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

/** The exit code of an error of the coordinator. */
export function exitCodeOf(code: Code): number {
  return exitCodes[code];
}

/** Where a command tried to connect, for messages. */
export interface Target {
  readonly server: string;
  /** The context in use, when the configuration has one. */
  readonly context?: string;
  readonly configPath: string;
}

/** What to tell about a failed call, and the exit code. */
export function describeCallFailure(reason: ConnectError, target: Target): CliFailure {
  const exitCode = exitCodeOf(reason.code);
  const network = networkReason(reason);
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
      `${target.server} did not answer in time: ${reason.rawMessage}. Allow more with --timeout`,
      {
        cause: reason,
      },
    );
  }
  return new CliFailure(exitCode, `${reason.rawMessage} (${codeName(reason.code)})`, {
    cause: reason,
  });
}

/** `NOT_FOUND` for `Code.NotFound`. */
function codeName(code: Code): string {
  return Code[code].replaceAll(/(?<=[a-z])(?=[A-Z])/g, '_').toUpperCase();
}

/** Why the connection itself failed, or `undefined` when a coordinator answered. */
function networkReason(reason: ConnectError): string | undefined {
  let cause: unknown = reason.cause;
  for (let link = 0; link < MAX_CAUSES && typeof cause === 'object' && cause !== null; link += 1) {
    const known = 'code' in cause ? networkReasons[String(cause.code)] : undefined;
    if (known !== undefined) return known;
    cause = 'cause' in cause ? cause.cause : undefined;
  }
  return undefined;
}

const networkReasons: Readonly<Record<string, string>> = {
  ECONNREFUSED: 'connection refused',
  ENOTFOUND: 'no such host',
  EAI_AGAIN: 'the host name cannot be looked up now',
  ETIMEDOUT: 'connection timed out',
  EHOSTUNREACH: 'no route to the host',
  ENETUNREACH: 'network unreachable',
  ECONNRESET: 'the connection was closed',
  EPIPE: 'the connection was closed',
  ERR_HTTP2_ERROR: 'it does not speak HTTP/2',
  ERR_HTTP2_SESSION_ERROR: 'the connection was closed',
  ERR_HTTP2_STREAM_CANCEL: 'the connection was closed',
  ERR_SSL_WRONG_VERSION_NUMBER: 'it does not speak TLS; use http:// instead of https://',
  DEPTH_ZERO_SELF_SIGNED_CERT: 'its certificate is not trusted',
  SELF_SIGNED_CERT_IN_CHAIN: 'its certificate is not trusted',
  UNABLE_TO_VERIFY_LEAF_SIGNATURE: 'its certificate is not trusted',
};

/** A cause chain may be a cycle. */
const MAX_CAUSES = 8;

/**
 * Whether the same call may succeed when sent again soon: the connection broke or no coordinator
 * leads.
 */
export function isTransient(reason: unknown): boolean {
  if (!(reason instanceof ConnectError)) return false;
  return (
    wasCutOff(reason) || reason.code === Code.Unavailable || networkReason(reason) !== undefined
  );
}

/**
 * Whether the server died while it answered: Node then resets the stream with CANCEL. An end of our
 * own is told apart by our signal. It proves that the call had begun.
 */
export function wasCutOff(reason: unknown): boolean {
  return (
    reason instanceof ConnectError &&
    reason.code === Code.Canceled &&
    reason.rawMessage.startsWith('http/2 stream closed')
  );
}
