import { createCipheriv, createDecipheriv } from 'node:crypto';
import type { Random } from '@cloudless/base';

/** Bytes of every key: AES-256. */
export const KEY_BYTES = 32;
/** Bytes of a nonce: the size for which GCM needs no further hash. */
const NONCE_BYTES = 12;
const TAG_BYTES = 16;
const CIPHER = 'aes-256-gcm';

/**
 * Encrypts with AES-256-GCM.
 * @param key - 32 bytes. Encrypt at most 2^32 texts with one key, because nonces are random.
 * @param context - Bound to the result: only the same context decrypts it.
 * @returns Nonce, ciphertext and tag: 28 bytes more than the text.
 * @see NIST SP 800-38D, 8.3 "Constraints on the Number of Invocations"
 */
export function seal(
  key: Uint8Array,
  plaintext: Uint8Array,
  context: Uint8Array,
  random: Random,
): Uint8Array {
  const nonce = random.bytes(NONCE_BYTES);
  const cipher = createCipheriv(CIPHER, key, nonce, { authTagLength: TAG_BYTES });
  cipher.setAAD(context);
  const body = cipher.update(plaintext);
  const end = cipher.final();
  return new Uint8Array(Buffer.concat([nonce, body, end, cipher.getAuthTag()]));
}

/**
 * Decrypts the result of {@link seal}.
 * @returns Undefined when the key or the context is another, or the bytes were changed.
 */
export function open(
  key: Uint8Array,
  sealed: Uint8Array,
  context: Uint8Array,
): Uint8Array | undefined {
  if (sealed.length < NONCE_BYTES + TAG_BYTES) return undefined;
  const tagStart = sealed.length - TAG_BYTES;
  const decipher = createDecipheriv(CIPHER, key, sealed.subarray(0, NONCE_BYTES), {
    authTagLength: TAG_BYTES,
  });
  decipher.setAAD(context);
  decipher.setAuthTag(sealed.subarray(tagStart));
  const body = decipher.update(sealed.subarray(NONCE_BYTES, tagStart));
  try {
    return new Uint8Array(Buffer.concat([body, decipher.final()]));
  } catch {
    return undefined;
  }
}

/** Encodes texts so that different lists never give the same bytes. */
export function encodeContext(...parts: readonly string[]): Uint8Array {
  return new Uint8Array(Buffer.from(JSON.stringify(parts), 'utf8'));
}
