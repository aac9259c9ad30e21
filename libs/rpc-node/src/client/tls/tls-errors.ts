import { CloudlessError, errorMessageOf } from '@cloudless/base';

/** Codes of OpenSSL for a server that answers a TLS handshake in plaintext. */
const PLAINTEXT_CODES = [
  'ERR_SSL_WRONG_VERSION_NUMBER',
  'ERR_SSL_PACKET_LENGTH_TOO_LONG',
  'ERR_SSL_HTTP_REQUEST',
];
/** Alerts by which a server refuses the certificate of a client (RFC 8446, section 6.2). */
const CERTIFICATE_ALERT = /^ERR_SSL_.*ALERT_.*(CERTIFICATE|UNKNOWN_CA|ACCESS_DENIED)/;
/** Alerts of a server without a common version or cipher. */
const VERSION_ALERT =
  /ALERT_PROTOCOL_VERSION|ALERT_HANDSHAKE_FAILURE|UNSUPPORTED_PROTOCOL|ALERT_NO_APPLICATION_PROTOCOL/;

/**
 * Returns the error for a server whose certificate is refused.
 * @param reason - What the verification of the certificate threw.
 * @param hint - Follows the message of the reason.
 */
export function createTrustError(address: string, reason: unknown, hint?: string): CloudlessError {
  const kind = reason instanceof CloudlessError ? reason.reason : 'CERTIFICATE_INVALID';
  return new CloudlessError(
    kind,
    `the server at ${address} is not trusted: ${errorMessageOf(reason)}${hint === undefined ? '' : `; ${hint}`}`,
    { cause: reason },
  );
}

/** Returns the error for a server with TLS that does not offer HTTP/2. */
export function createProtocolError(address: string): CloudlessError {
  return new CloudlessError(
    'unavailable',
    `the server at ${address} does not speak HTTP/2; is the port the one of the API?`,
  );
}

/**
 * Converts the error of a connection attempt with TLS to an error whose text says what to do. A
 * {@link CloudlessError} is returned unchanged.
 * @param isPresented - True when the server has presented its certificate.
 */
export function toTlsError(address: string, cause: unknown, isPresented: boolean): CloudlessError {
  if (cause instanceof CloudlessError) return cause;
  const code = codeOf(cause);
  // Codes of the verification of OpenSSL, in contrast to all others, do not start with E.
  if (isPresented && code !== '' && !code.startsWith('E'))
    return createTrustError(address, new Error(`OpenSSL refuses the certificate (${code})`));
  if (PLAINTEXT_CODES.includes(code)) {
    return new CloudlessError(
      'unavailable',
      `the server at ${address} does not speak TLS; a coordinator with --tls off has an address with http://`,
      { cause },
    );
  }
  if (CERTIFICATE_ALERT.test(code)) {
    return new CloudlessError(
      'CERTIFICATE_INVALID',
      `the server at ${address} refused the certificate of this client (${code})`,
      { cause },
    );
  }
  if (VERSION_ALERT.test(code)) {
    return new CloudlessError(
      'unavailable',
      `the server at ${address} does not speak TLS 1.3 and HTTP/2 (${code})`,
      { cause },
    );
  }
  if (code === 'ECONNRESET' || code === 'EPIPE') {
    return new CloudlessError(
      'unavailable',
      `the server at ${address} closed the connection before the TLS handshake was complete; a coordinator with --tls off has an address with http://`,
      { cause },
    );
  }
  return createUnreachableError(address, cause);
}

/** No connection to the address was possible. */
export function createUnreachableError(address: string, cause: unknown): CloudlessError {
  return new CloudlessError('unavailable', `no coordinator reached at ${address}`, { cause });
}

/** Returns the code of an error of Node or OpenSSL; empty when the error has none. */
export function codeOf(reason: unknown): string {
  return typeof reason === 'object' && reason !== null && 'code' in reason
    ? String(reason.code)
    : '';
}
