import { CloudlessError } from '@cloudless/base';

/** Returns DER as PEM with a line feed at the end. */
export function encodePem(label: 'CERTIFICATE' | 'PRIVATE KEY', der: Uint8Array): string {
  // 64 characters in one line (RFC 7468, section 2).
  const lines =
    Buffer.from(der)
      .toString('base64')
      .match(/.{1,64}/g) ?? [];
  return [`-----BEGIN ${label}-----`, ...lines, `-----END ${label}-----`, ''].join('\n');
}

const CERTIFICATE_BLOCK =
  /-----BEGIN CERTIFICATE-----\r?\n(?<base64>[A-Za-z0-9+/=\r\n]+)-----END CERTIFICATE-----/g;

/**
 * Returns the certificates of a PEM text as DER, in the order of the text. Text between the
 * certificates is ignored, as other programs do.
 * @param what - The text for errors: `the trust bundle`.
 * @throws {@link CloudlessError} of reason CERTIFICATE_INVALID when the text has no certificate.
 */
export function decodeCertificates(pem: string, what: string): Uint8Array[] {
  const certificates = Array.from(
    pem.matchAll(CERTIFICATE_BLOCK),
    ({ groups }) => new Uint8Array(Buffer.from(groups?.['base64'] ?? '', 'base64')),
  );
  if (certificates.length === 0)
    throw new CloudlessError('CERTIFICATE_INVALID', `${what} contains no certificate in PEM form`);
  return certificates;
}
