import { Code, ConnectError } from '@connectrpc/connect';
import { isRefusedStream, readErrorDetails, readLeaderHint, type LeaderHint } from '@cloudless/api';
import type { ErrorReason } from '@cloudless/base';
import { splitServers } from '../config/server-list.js';
import { CliFailure, ExitCode, type ConnectionTarget } from './failure.js';
import {
  describeRefusal,
  describeTlsFailure,
  findTlsFailure,
  isLastingTlsFailure,
} from './identity-failure.js';

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

/** The exit codes of reasons that are more specific than the code of the error. */
const REASON_EXIT_CODES: Partial<Readonly<Record<ErrorReason, number>>> = {
  // RESOURCE_EXHAUSTED, but not a lack of capacity of the nodes: a later call can succeed.
  RATE_LIMITED: ExitCode.unavailable,
  SERVER_OVERLOADED: ExitCode.unavailable,
  TOO_MANY_STREAMS: ExitCode.unavailable,
  // RESOURCE_EXHAUSTED, and the same call fails again.
  REQUEST_TOO_LARGE: ExitCode.usage,
  RESPONSE_TOO_LARGE: ExitCode.error,
  SLOW_READER: ExitCode.error,
  ROLLOUT_FAILED: ExitCode.rolloutFailed,
};

/**
 * Returns the exit code for an error of the coordinator: by its reason when the reason is known and
 * more specific, otherwise by its code.
 */
export function toExitCode(code: Code, reason?: ErrorReason): number {
  return (reason === undefined ? undefined : REASON_EXIT_CODES[reason]) ?? EXIT_CODES[code];
}

/** Returns true for the error of a call to a coordinator. */
export function isCallError(reason: unknown): reason is ConnectError {
  return reason instanceof ConnectError;
}

/**
 * Converts the error of a call to a {@link CliFailure}. The message of a connection error names the
 * address and the settings that may be wrong.
 */
export function describeCallFailure(
  reason: ConnectError,
  target: ConnectionTarget,
  nowMs: number,
): CliFailure {
  const exitCode = toExitCode(reason.code, readErrorDetails(reason).reason);
  const network = findNetworkFailure(reason);
  const tls = findTlsFailure(reason);
  if (tls !== undefined && (network === undefined || !isUnreachable(network))) {
    return new CliFailure(ExitCode.unavailable, describeTlsFailure(tls, target), { cause: reason });
  }
  if (network !== undefined) {
    return new CliFailure(
      ExitCode.unavailable,
      `cannot reach ${describeServers(target.server)}: ${network.text}${describeDefaultPort(target.server)}. Is it running (npm start)? ` +
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
  if (isRefusedStream(reason))
    return new CliFailure(
      ExitCode.unavailable,
      `the coordinator (${target.server}) ended the connection before it began the call. Repeat the command`,
      { cause: reason },
    );
  if (isServerReset(reason))
    return new CliFailure(
      ExitCode.unavailable,
      `the connection to the coordinator (${target.server}) was lost before the call ended. Check whether the change was made, then repeat the command`,
      { cause: reason },
    );
  const hint = readLeaderHint(reason);
  if (hint !== undefined)
    return new CliFailure(exitCode, describeMissingLeader(reason, hint), { cause: reason });
  const text =
    describeRefusal(reason, target, nowMs) ?? `${nameFlags(reason)} (${toCodeName(reason.code)})`;
  return new CliFailure(exitCode, text, { cause: reason });
}

/**
 * Fields of requests in messages of the coordinator, by the reason of the error, with the flag that
 * sets the field. Only reasons that one command can get: another may not have the flag.
 */
const FLAGS_BY_REASON: Partial<Readonly<Record<ErrorReason, Readonly<Record<string, string>>>>> = {
  NO_EARLIER_VERSION: { to_version: '--to-version' },
};

/** Returns the message of an error with flags in place of fields. */
function nameFlags(error: ConnectError): string {
  const { reason } = readErrorDetails(error);
  const flags = Object.entries((reason === undefined ? {} : FLAGS_BY_REASON[reason]) ?? {});
  return flags.reduce((text, [field, flag]) => text.replaceAll(field, flag), error.rawMessage);
}

/** Describes that the coordinators which answer do not lead. */
function describeMissingLeader({ rawMessage }: ConnectError, { address }: LeaderHint): string {
  return address === undefined
    ? `no coordinator leads at the moment: ${rawMessage}. An election takes some seconds, so repeat the command; if that does not help, check that most members of the etcd cluster run`
    : `the coordinator that answered does not lead: ${rawMessage}. Repeat the command, or call the leader with --server ${address}`;
}

function describeServers(server: string): string {
  const [first = server, ...others] = splitServers(server);
  if (others.length === 0) return `the coordinator at ${first}`;
  return `any coordinator of ${[first, ...others].join(', ')}; the last failure`;
}

/** Describes the port of an address without a port, which is rarely meant. */
function describeDefaultPort(server: string): string {
  if (splitServers(server).every((address) => /:\d+$/.test(address))) return '';
  const port = server.startsWith('https:') ? 443 : 80;
  return `. The address has no port, so port ${port} was used; coordinators listen on 8080 by default`;
}

/** Returns true when the server has closed the connection without an answer. */
export function isClosedByServer(reason: ConnectError): boolean {
  const network = findNetworkFailure(reason);
  return network === undefined ? isServerReset(reason) : !isUnreachable(network);
}

/** Describes that the address of a server with TLS was given with http. */
export function describeTlsServer(reason: ConnectError, { server }: ConnectionTarget): CliFailure {
  return new CliFailure(
    ExitCode.unavailable,
    `the server at ${server} speaks TLS; use ${server.replace(/^http:/, 'https:')}`,
    { cause: reason },
  );
}

/** Returns the name of a code as gRPC spells it: `NOT_FOUND` for `Code.NotFound`. */
export function toCodeName(code: Code): string {
  return Code[code].replaceAll(/(?<=[a-z])(?=[A-Z])/g, '_').toUpperCase();
}

/** Why a connection failed. */
interface NetworkFailure {
  /** Code of the error of Node. */
  readonly code: string;
  readonly text: string;
  /** True when a later attempt may succeed. */
  readonly isPassing: boolean;
}

/**
 * Returns why the connection failed, found by the Node error code in the chain of causes; undefined
 * when the error has no such cause, for example when a coordinator answered.
 */
function findNetworkFailure(reason: ConnectError): NetworkFailure | undefined {
  let cause: unknown = reason.cause;
  for (let link = 0; link < MAX_CAUSES && typeof cause === 'object' && cause !== null; link += 1) {
    const code = 'code' in cause ? String(cause.code) : '';
    const passing = PASSING_NETWORK_REASONS[code];
    if (passing !== undefined) return { code, text: passing, isPassing: true };
    const lasting = LASTING_NETWORK_REASONS[code];
    if (lasting !== undefined) return { code, text: lasting, isPassing: false };
    cause = 'cause' in cause ? cause.cause : undefined;
  }
  return undefined;
}

/** Failures of the connection that a later attempt may not meet. */
const PASSING_NETWORK_REASONS: Readonly<Record<string, string>> = {
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
};

/** Failures of the connection that every later attempt meets too. */
const LASTING_NETWORK_REASONS: Readonly<Record<string, string>> = {
  ERR_SSL_WRONG_VERSION_NUMBER: 'the server does not speak TLS; use http:// instead of https://',
};

/** Returns true when the server was not reached, so that TLS has nothing to do with the failure. */
function isUnreachable({ code }: NetworkFailure): boolean {
  return UNREACHABLE_CODES.has(code);
}

const UNREACHABLE_CODES: ReadonlySet<string> = new Set([
  'ECONNREFUSED',
  'ENOTFOUND',
  'EAI_AGAIN',
  'ETIMEDOUT',
  'EHOSTUNREACH',
  'ENETUNREACH',
]);

/** Number of causes that are examined. A chain of causes may be a cycle. */
const MAX_CAUSES = 8;

/**
 * Returns true when a later attempt of the same call may succeed: the coordinator died, was closing,
 * could not be reached, or answered UNAVAILABLE, for example because it is not the leader. False for
 * a connection that fails in the same way each time, such as one to a server with an untrusted
 * certificate.
 */
export function isTransient(reason: unknown): boolean {
  if (!(reason instanceof ConnectError)) return false;
  if (isServerReset(reason) || isRefusedStream(reason)) return true;
  const tls = findTlsFailure(reason);
  const isPassing = findNetworkFailure(reason)?.isPassing;
  if (tls !== undefined) return !isLastingTlsFailure(tls) && (isPassing ?? true);
  return isPassing ?? reason.code === Code.Unavailable;
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
