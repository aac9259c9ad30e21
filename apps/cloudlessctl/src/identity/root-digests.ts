import { createHash } from 'node:crypto';
import { X509Certificate } from 'node:crypto';

/**
 * Returns the SHA-256 of each certificate of a PEM text (of its DER form, 64 hex digits).
 * @throws Error when the text has no certificate, or one is damaged.
 */
export function hashRoots(pem: string): readonly string[] {
  const blocks = pem.match(/-----BEGIN CERTIFICATE-----[\s\S]*?-----END CERTIFICATE-----/g) ?? [];
  if (blocks.length === 0) throw new Error('expected certificates in PEM, got none');
  return blocks.map((block, index) => {
    try {
      return createHash('sha256').update(new X509Certificate(block).raw).digest('hex');
    } catch {
      throw new Error(`certificate ${index + 1} is damaged`);
    }
  });
}
