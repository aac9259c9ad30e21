import { Code, ConnectError } from '@connectrpc/connect';
import { CloudlessError, errorMessageOf } from '@cloudless/base';

/** What a failed call to etcd means for its caller. */
export interface EtcdFailure {
  readonly error: CloudlessError;
  /**
   * - `answer`: etcd decided; another attempt has the same result.
   * - `notApplied`: the request had no effect; another attempt, at another member, may succeed.
   * - `unknown`: a write may have been applied, now or later.
   * - `token`: the authentication token is not valid; authenticate and try again.
   */
  readonly outcome: 'answer' | 'notApplied' | 'unknown' | 'token';
  /** True when the member itself did not answer, so that its watches are doubtful too. */
  readonly isSilent: boolean;
}

/** Answers of etcd by a part of their text, which is stable since etcd 3.4. */
const ANSWERS: readonly (readonly [
  text: string,
  outcome: EtcdFailure['outcome'],
  toError: (cause: ConnectError) => CloudlessError,
])[] = [
  [
    'required revision has been compacted',
    'answer',
    (cause) => new CloudlessError('compacted', 'etcd no longer retains this revision', { cause }),
  ],
  [
    'required revision is a future revision',
    'answer',
    (cause) => new CloudlessError('invalid', 'the revision is in the future', { cause }),
  ],
  [
    'database space exceeded',
    'answer',
    (cause) =>
      new CloudlessError(
        'STORE_FULL',
        'the space quota of etcd is exceeded: etcd refuses writes until its history is compacted, its members are defragmented and the alarm NOSPACE is disarmed',
        { cause },
      ),
  ],
  [
    'requested lease not found',
    'answer',
    (cause) => new CloudlessError('notFound', 'the lease does not exist or has ended', { cause }),
  ],
  [
    'permission denied',
    'answer',
    (cause) =>
      new CloudlessError('denied', 'etcd refused the call: its user lacks the permission', {
        cause,
      }),
  ],
  [
    'authentication failed',
    'answer',
    (cause) =>
      new CloudlessError('unauthenticated', 'etcd does not accept the user and password', {
        cause,
      }),
  ],
  [
    'user name is empty',
    'answer',
    (cause) =>
      new CloudlessError(
        'unauthenticated',
        'etcd requires a user: set --etcd-user and --etcd-password-file',
        { cause },
      ),
  ],
  ['invalid auth token', 'token', toUnavailable],
  ['revision of auth store is old', 'token', toUnavailable],
  // Refused before the proposal.
  ['no leader', 'notApplied', toUnavailable],
  ['too many requests', 'notApplied', toUnavailable],
];

/** Converts what a call to etcd threw. */
export function toEtcdFailure(reason: unknown): EtcdFailure {
  const cause = ConnectError.from(reason);
  for (const [text, outcome, toError] of ANSWERS)
    if (cause.rawMessage.includes(text)) return { error: toError(cause), outcome, isSilent: false };
  switch (cause.code) {
    case Code.DeadlineExceeded:
      return {
        error: new CloudlessError('deadline', 'etcd did not answer in time', { cause }),
        outcome: 'unknown',
        isSilent: true,
      };
    case Code.InvalidArgument:
    case Code.FailedPrecondition:
    case Code.OutOfRange:
    case Code.Unimplemented:
      return {
        error: new CloudlessError('internal', 'etcd refused the call', { cause }),
        outcome: 'answer',
        isSilent: false,
      };
    default:
      // Resets of streams and connections have various codes.
      return {
        error: toUnavailable(cause),
        outcome: 'unknown',
        isSilent: !cause.rawMessage.includes('etcdserver:'),
      };
  }
}

function toUnavailable(cause: ConnectError): CloudlessError {
  return new CloudlessError(
    'STORE_UNAVAILABLE',
    'the connection to etcd failed, or etcd has no quorum',
    { cause },
  );
}

/**
 * Explains why no connection to an endpoint could be opened.
 * @returns Kind `precondition` when the settings must be changed; otherwise kind `unavailable`.
 */
export function explainConnectFailure(url: string, reason: unknown): CloudlessError {
  const text = describeChain(reason);
  for (const [pattern, explanation] of CONNECT_PROBLEMS)
    if (pattern.test(text))
      return new CloudlessError('precondition', `${url}: ${explanation}`, { cause: reason });
  return new CloudlessError('STORE_UNAVAILABLE', `${url}: cannot be reached`, { cause: reason });
}

const CONNECT_PROBLEMS: readonly (readonly [RegExp, string])[] = [
  [
    /UNABLE_TO_VERIFY|SELF_SIGNED|self.signed|UNABLE_TO_GET_ISSUER|unable to (verify|get)|CERT_SIGNATURE_FAILURE|certificate signature failure/i,
    'the certificate of etcd is not signed by the CA of --etcd-ca',
  ],
  [/CERT_HAS_EXPIRED|certificate has expired/i, 'the certificate of etcd has expired'],
  [
    /ERR_TLS_CERT_ALTNAME_INVALID|altnames/i,
    'the certificate of etcd is not valid for this name or address; use a name of the certificate in --etcd-endpoints',
  ],
  [
    /ALERT_(BAD_CERTIFICATE|CERTIFICATE|UNKNOWN_CA)|alert (bad certificate|certificate|unknown ca)|ERR_SSL_TLSV13_ALERT_CERTIFICATE_REQUIRED/i,
    'etcd refused the client certificate; set --etcd-cert and --etcd-key to a certificate that the CA of etcd signed',
  ],
];

/** Creates the error about an endpoint that uses the other scheme than its URL. */
export function createSchemeError(
  url: string,
  scheme: 'http' | 'https',
  cause: unknown,
): CloudlessError {
  const advice =
    scheme === 'https'
      ? 'this endpoint of etcd uses TLS; use https:// with --etcd-ca'
      : 'this endpoint of etcd does not use TLS; use http:// without --etcd-ca, --etcd-cert and --etcd-key, or enable TLS in etcd';
  return new CloudlessError('precondition', `${url}: ${advice}`, { cause });
}

/** Joins the messages and codes of an error and its causes. */
function describeChain(reason: unknown): string {
  const parts: string[] = [];
  for (let level = reason; level instanceof Error && parts.length < 20; level = level.cause) {
    parts.push(errorMessageOf(level), String((level as { code?: unknown }).code ?? ''));
  }
  return parts.join(' ');
}
