import { X509Certificate, createPrivateKey } from 'node:crypto';
import { createSecureContext, type SecureContext } from 'node:tls';
import { CloudlessError } from '@cloudless/base';
import type { SecretData } from './values.js';

/**
 * Name of the value of a secret with a certificate and its intermediates in PEM, as in secrets of the
 * type `kubernetes.io/tls`.
 */
export const CERTIFICATE_ENTRY = 'tls.crt';
/**
 * Name of the value of a secret with the private key of {@link CERTIFICATE_ENTRY} in PEM, not
 * encrypted.
 */
export const PRIVATE_KEY_ENTRY = 'tls.key';
/** Largest value of {@link CERTIFICATE_ENTRY}, bytes. */
export const MAX_CERTIFICATE_BYTES = 65_536;
/** Largest value of {@link PRIVATE_KEY_ENTRY}, bytes. */
const MAX_PRIVATE_KEY_BYTES = 16_384;

/** A certificate with its private key. */
export interface CertificatePair {
  /** The certificate and its intermediates in PEM. */
  readonly certificate: string;
  /** The private key in PEM. Secret. */
  readonly key: string;
}

/** Names of a certificate and its key in error messages. */
export interface PairNames {
  /** The value of a secret, or a file. */
  readonly certificate: string;
  /** As for `certificate`. */
  readonly key: string;
  /** The object that holds both, such as `secret "default/web"`. Absent for files. */
  readonly subject?: string;
}

/** A pair with which a server can serve TLS. */
export interface OpenCertificatePair {
  /** The first certificate, that of the server. */
  readonly leaf: X509Certificate;
  /** Has the private key. */
  readonly context: SecureContext;
}

/**
 * Returns the certificate and the private key among the values of a secret. Host names and dates are
 * not checked: a certificate may be stored before it is valid.
 * @param subject - Names the values in errors: `secret "default/web"`.
 * @throws {@link CloudlessError} of kind `invalid`, without any value, when a key is missing or too
 *   large, a value is malformed, or the private key does not belong to the certificate.
 */
export function requireCertificatePair(data: SecretData, subject: string): CertificatePair {
  const certificate = readText(data, CERTIFICATE_ENTRY, MAX_CERTIFICATE_BYTES, subject);
  const key = readText(data, PRIVATE_KEY_ENTRY, MAX_PRIVATE_KEY_BYTES, subject);
  const pair = { certificate, key };
  openCertificatePair(pair, { certificate: CERTIFICATE_ENTRY, key: PRIVATE_KEY_ENTRY, subject });
  return pair;
}

/**
 * Opens a pair for a server with TLS 1.2 and later. Host names and dates are not checked.
 * @returns The first certificate, and the pair for the server.
 * @throws {@link CloudlessError} of kind `invalid`, without any part of the pair, when a part is
 *   malformed, or the private key does not belong to the first certificate.
 */
export function openCertificatePair(
  { certificate, key }: CertificatePair,
  names: PairNames,
): OpenCertificatePair {
  const subject = names.subject === undefined ? '' : ` of ${names.subject}`;
  const leaf = attempt(
    () => new X509Certificate(certificate),
    `${names.certificate}${subject} has no certificate in PEM`,
  );
  const privateKey = attempt(
    () => createPrivateKey(key),
    `${names.key}${subject} has no unencrypted private key in PEM`,
  );
  if (!leaf.checkPrivateKey(privateKey))
    throw new CloudlessError(
      'invalid',
      `${names.key}${subject} does not belong to the first certificate in ${names.certificate}`,
    );
  const context = attempt(
    () => createSecureContext({ cert: certificate, key, minVersion: 'TLSv1.2' }),
    `${names.certificate} and ${names.key}${subject} cannot serve TLS: an intermediate certificate is malformed, or the key is too weak`,
  );
  return { leaf, context };
}

function readText(data: SecretData, key: string, maxBytes: number, subject: string): string {
  const value = data.get(key);
  if (value === undefined) {
    const keys = [...data.keys()].sort().join(', ');
    const message = `${subject} needs the keys ${CERTIFICATE_ENTRY} and ${PRIVATE_KEY_ENTRY} for a route; its keys are ${keys}`;
    throw new CloudlessError('invalid', message);
  }
  if (value.length > maxBytes) {
    const message = `${key} of ${subject} has ${value.length} bytes; at most ${maxBytes} are possible for a route`;
    throw new CloudlessError('invalid', message);
  }
  return Buffer.from(value).toString('latin1');
}

/** Runs a function of OpenSSL. Its errors are replaced, because they may quote the input. */
function attempt<Result>(run: () => Result, message: string): Result {
  try {
    return run();
  } catch {
    throw new CloudlessError('invalid', message);
  }
}
