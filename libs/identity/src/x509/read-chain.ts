import { CloudlessError } from '@cloudless/base';
import { parseSpiffeId } from '../spiffe/spiffe-id.js';
import type { SpiffeId } from '../spiffe/spiffe-id.js';
import { readCertificate } from './certificate.js';
import type { CertificateChain } from './certificate-authority.js';
import { decodeCertificates, encodePem } from './pem.js';
import { sha256Hex } from './public-key.js';

/** What a stored certificate chain says. Nothing is verified. */
export interface StoredChain extends CertificateChain {
  readonly id: SpiffeId;
  /** The last certificate of the chain. */
  readonly rootPem: string;
}

/**
 * Reads the certificate chain of this process, for example from a file.
 * @throws {@link CloudlessError} of reason CERTIFICATE_INVALID when the text holds no chain of a
 *   cluster.
 */
export function readChain(pem: string): StoredChain {
  const [leafDer, ...others] = decodeCertificates(pem, 'the certificate file');
  const rootDer = others.at(-1);
  if (leafDer === undefined || rootDer === undefined) {
    throw new CloudlessError(
      'CERTIFICATE_INVALID',
      'the certificate file has no certificate of a certificate authority after the first certificate',
    );
  }
  const leaf = readCertificate(leafDer, 'the certificate');
  const [uri = ''] = leaf.extensions.uris;
  return {
    pem: encodeCertificates([leafDer, ...others]),
    id: parseSpiffeId(uri),
    serial: leaf.serial,
    notBeforeMs: leaf.notBeforeMs,
    notAfterMs: leaf.notAfterMs,
    publicKeySha256: sha256Hex(leaf.publicKey),
    rootPem: encodePem('CERTIFICATE', rootDer),
  };
}

/** Returns certificates (DER) as one PEM text in the same order. */
export function encodeCertificates(certificates: readonly Uint8Array[]): string {
  return certificates.map((der) => encodePem('CERTIFICATE', der)).join('');
}
