import { TestAuthority } from '@cloudless/identity/testing';

/** Values of a secret with a certificate and its key. */
export type CertificateData = Readonly<Record<'tls.crt' | 'tls.key', Uint8Array>>;

/** Creates values of a secret, with a certificate for a new key. */
export async function createCertificate(): Promise<CertificateData> {
  const authority = await TestAuthority.create({ nowMs: 0 });
  const { chainPem, keyPem } = await authority.issue('node', 'n1');
  return { 'tls.crt': Buffer.from(chainPem), 'tls.key': Buffer.from(keyPem) };
}
