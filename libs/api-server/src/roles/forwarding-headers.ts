import { CloudlessError } from '@cloudless/base';

/**
 * The headers by which a coordinator forwards a call to the leader. The leader authenticates the
 * client of the call itself, by the credentials that the client has presented: the header
 * `Authorization` as it came, and the certificates in {@link CERTIFICATES_HEADER}.
 */
const FORWARDED_BY_HEADER = 'cloudless-forwarded-by';
/** The certificates of the client and those above, each DER in base64, separated by commas. */
const CERTIFICATES_HEADER = 'cloudless-forwarded-certificates';
/** The address of the client. */
const FORWARDED_FOR_HEADER = 'cloudless-forwarded-for';

/** Headers of the client that a forwarded call keeps, beside its credentials. */
const KEPT_HEADERS = ['traceparent', 'tracestate', 'user-agent'];

/** The client of a call that a coordinator has forwarded. */
export interface ForwardedClient {
  /** Id of the coordinator that forwards the call. */
  readonly forwardedBy: string;
  readonly remoteAddress: string;
  /** The certificates that the client presented. Undefined: none. */
  readonly chainDer?: readonly Uint8Array[] | undefined;
}

/** Returns true for a call that claims to be forwarded. */
export function isForwarded(header: Pick<Headers, 'has'>): boolean {
  return (
    header.has(FORWARDED_BY_HEADER) ||
    header.has(CERTIFICATES_HEADER) ||
    header.has(FORWARDED_FOR_HEADER)
  );
}

/** Returns true for a call that claims to be forwarded for a certain client. */
export function namesClient(header: Pick<Headers, 'has'>): boolean {
  return header.has(CERTIFICATES_HEADER) || header.has(FORWARDED_FOR_HEADER);
}

/**
 * Creates the headers of a forwarded call.
 * @param client - `chainDer` and `remoteAddress` are left out in a cluster without TLS, in which no
 *   coordinator can prove who forwards.
 */
export function createForwardingHeaders(
  header: Headers,
  client: Pick<ForwardedClient, 'forwardedBy'> & Partial<ForwardedClient>,
): Headers {
  const created = new Headers();
  for (const name of KEPT_HEADERS) {
    const value = header.get(name);
    if (value !== null) created.set(name, value);
  }
  created.set(FORWARDED_BY_HEADER, client.forwardedBy);
  if (client.remoteAddress === undefined) return created;
  created.set(FORWARDED_FOR_HEADER, client.remoteAddress);
  const authorization = header.get('authorization');
  if (authorization !== null) created.set('authorization', authorization);
  if (client.chainDer !== undefined)
    created.set(CERTIFICATES_HEADER, client.chainDer.map(toBase64).join(','));
  return created;
}

/**
 * Reads the headers of a call that a coordinator has forwarded. Call it only once the caller is
 * known to be a coordinator.
 * @throws kind `invalid` when the headers are incomplete or malformed.
 */
export function readForwardingHeaders(header: Headers): ForwardedClient {
  const forwardedBy = header.get(FORWARDED_BY_HEADER);
  const remoteAddress = header.get(FORWARDED_FOR_HEADER);
  const certificates = header.get(CERTIFICATES_HEADER);
  if (forwardedBy === null || remoteAddress === null) {
    throw new CloudlessError(
      'invalid',
      `a forwarded call needs the headers ${FORWARDED_BY_HEADER} and ${FORWARDED_FOR_HEADER}`,
    );
  }
  const chainDer = certificates?.split(',').map((text) => Buffer.from(text, 'base64'));
  return { forwardedBy, remoteAddress, chainDer };
}

/** Returns a key that is equal for calls with equal certificates; undefined without certificates. */
export function getCertificatesKey(header: Headers): string | undefined {
  return header.get(CERTIFICATES_HEADER) ?? undefined;
}

function toBase64(der: Uint8Array): string {
  return Buffer.from(der).toString('base64');
}
