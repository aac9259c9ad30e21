import { createHash, createPublicKey, verify, type KeyObject } from 'node:crypto';
import { CloudlessError } from '@cloudless/base';

/**
 * The beginning of every SubjectPublicKeyInfo of P-256 with an uncompressed point: id-ecPublicKey,
 * prime256v1, and 65 bytes of point, of which the first is 4.
 *
 * @see RFC 5480, section 2
 */
const P256_HEADER = Buffer.from('3059301306072a8648ce3d020106082a8648ce3d03010703420004', 'hex');
const P256_LENGTH = 91;

/** AlgorithmIdentifier of ecdsa-with-SHA256, which has no parameters (RFC 5758, section 3.2). */
export const ECDSA_SHA256 = Buffer.from('300a06082a8648ce3d040302', 'hex');

/** The type of every key of a cluster. */
export const P256_ALGORITHM = { name: 'ECDSA', namedCurve: 'P-256', hash: 'SHA-256' } as const;

/**
 * Reads a public key.
 * @param spki - SubjectPublicKeyInfo, DER.
 * @param what - The owner for errors: `the certificate of the client`.
 * @throws {@link CloudlessError} of reason CERTIFICATE_INVALID unless the key is an uncompressed
 *   point on P-256.
 */
export function readP256Key(spki: Uint8Array, what: string): KeyObject {
  checkP256(spki, what);
  try {
    return createPublicKey({ key: Buffer.from(spki), format: 'der', type: 'spki' });
  } catch (cause) {
    throw new CloudlessError(
      'CERTIFICATE_INVALID',
      `the key of ${what} is not a point on the curve P-256`,
      { cause },
    );
  }
}

/**
 * Checks the form of a public key, but not that the point is on the curve. Costs far less than
 * {@link readP256Key}.
 * @throws {@link CloudlessError} of reason CERTIFICATE_INVALID unless the key is for P-256.
 */
export function checkP256(spki: Uint8Array, what: string): void {
  if (spki.length === P256_LENGTH && P256_HEADER.equals(spki.subarray(0, P256_HEADER.length)))
    return;
  throw new CloudlessError(
    'CERTIFICATE_INVALID',
    `the key of ${what} is not an ECDSA key on the curve P-256`,
  );
}

/** Returns true when `signature` (DER, ECDSA with SHA-256) of `data` was made with a key. */
export function isSignedBy(data: Uint8Array, signature: Uint8Array, key: KeyObject): boolean {
  return verify('sha256', data, key, signature);
}

/** Returns SHA-256 as 64 lower-case hex digits. */
export function sha256Hex(bytes: Uint8Array): string {
  return createHash('sha256').update(bytes).digest('hex');
}
