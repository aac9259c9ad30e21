import { Code, type ConnectError } from '@connectrpc/connect';
import { readErrorDetails } from '@cloudless/api';
import { CloudlessError } from '@cloudless/base';
import type { ErrorReason } from '@cloudless/base';
import { formatSpan } from '../output/human.js';
import type { ConnectionTarget } from './failure.js';

/** Number of causes that are examined. A chain of causes may be a cycle. */
const MAX_CAUSES = 8;

/** Difference of two clocks from which on a message mentions the difference, milliseconds. */
const CLOCK_DIFFERENCE_MS = 30_000;

/**
 * Returns the error of a connection attempt with TLS in a chain of causes; undefined when there is
 * none. Its message stands alone.
 */
export function findTlsFailure(reason: ConnectError): CloudlessError | undefined {
  // An error with a reason is the answer of a coordinator.
  if (readErrorDetails(reason).reason !== undefined) return undefined;
  let cause: unknown = reason.cause;
  for (let link = 0; link < MAX_CAUSES && cause instanceof Error; link += 1) {
    if (cause instanceof CloudlessError) return cause;
    cause = cause.cause;
  }
  return undefined;
}

/** Returns true when every later attempt to connect with TLS meets the same failure. */
export function isLastingTlsFailure({ reason }: CloudlessError): boolean {
  return TRUST_REASONS.has(reason);
}

const TRUST_REASONS: ReadonlySet<ErrorReason> = new Set([
  'CERTIFICATE_INVALID',
  'CERTIFICATE_EXPIRED',
  'CERTIFICATE_NOT_YET_VALID',
]);

const PRINT_ROOT = '(an administrator prints it with: cloudlessctl admin ca --pem)';

/** Describes why no connection with TLS was possible, and what to do. */
export function describeTlsFailure(
  { reason, message }: CloudlessError,
  { server }: ConnectionTarget,
): string {
  // The key and the certificate of this machine are damaged, or the server refuses them.
  if (reason === 'CERTIFICATE_INVALID' && message.includes('of this client'))
    return `${message}; log in again with: cloudlessctl login ${server}`;
  if (reason === 'CERTIFICATE_INVALID' && message.includes('in the CA file'))
    return `${message}. Nothing was sent. Give the root of this cluster with --ca-file ${PRINT_ROOT}, or give no file, to trust the root that the token names`;
  if (reason === 'CERTIFICATE_INVALID')
    return (
      `${message}. Nothing was sent. If this is the right server and its certificate authority has ` +
      `changed, log in again with a new token (cloudlessctl login ${server}), or give its new root ` +
      `with --ca-file ${PRINT_ROOT}`
    );
  if (reason === 'CERTIFICATE_EXPIRED')
    return `${message}. Nothing was sent. Compare the clocks of both machines; a coordinator renews its certificate itself, and its log names a failure`;
  if (reason === 'CERTIFICATE_NOT_YET_VALID')
    return `${message}. Nothing was sent. Set the clock that is wrong, and try again`;
  return message;
}

/**
 * Describes why the coordinator refused a credential or the right to make a call, and the command
 * that helps; undefined for other errors.
 * @param nowMs - Wall clock of this machine.
 */
export function describeRefusal(
  error: ConnectError,
  target: ConnectionTarget,
  nowMs: number,
): string | undefined {
  const { reason, metadata = {} } = readErrorDetails(error);
  if (error.code === Code.PermissionDenied) {
    // Without a namespace in the answer, the role in any namespace is enough, such as in that of the
    // command.
    const { principal = '', role, namespace = target.namespace ?? 'NAMESPACE' } = metadata;
    if (role === undefined || !principal.startsWith('user/')) return undefined;
    const scope = namespace === '' ? '--cluster' : `-n ${namespace}`;
    const user = principal.slice('user/'.length);
    return `${error.rawMessage} (PERMISSION_DENIED)\nAn administrator grants the role with: cloudlessctl user grant ${user} ${role} ${scope}`;
  }
  if (error.code !== Code.Unauthenticated) return undefined;
  const clocks = describeClocks(metadata['serverTime'], nowMs);
  const advice =
    reason === 'CERTIFICATE_NOT_YET_VALID' || clocks !== '' ? '' : adviseLogin(target.server);
  return `${error.rawMessage} (UNAUTHENTICATED)${clocks}${advice}`;
}

const adviseLogin = (server: string): string =>
  `\nLog in with a valid token: cloudlessctl login ${server}`;

/** Compares the clock of the coordinator with that of this machine. Empty when they agree. */
function describeClocks(serverTime: string | undefined, nowMs: number): string {
  const serverMs = Date.parse(serverTime ?? '');
  const differenceMs = nowMs - serverMs;
  if (!(Math.abs(differenceMs) >= CLOCK_DIFFERENCE_MS)) return '';
  const order = differenceMs > 0 ? 'ahead of' : 'behind';
  return `\nThe clock of this machine shows ${toSeconds(nowMs)}, the clock of the coordinator ${toSeconds(serverMs)}: this machine is ${formatSpan(Math.abs(differenceMs))} ${order} the coordinator. Set the clock that is wrong, and try again`;
}

function toSeconds(timeMs: number): string {
  return new Date(timeMs).toISOString().replace(/\.\d+Z$/, 'Z');
}
