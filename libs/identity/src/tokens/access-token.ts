import { createIdAndSecret, equalHashes, hashText } from './token.js';

/** The parts of the text of an access token, `cls1.<id>.<secret>`. */
export interface AccessTokenParts {
  /** Names the token in lists and records; 12 lower-case letters and digits. Not secret. */
  readonly id: string;
  /** 256 random bits as 43 characters of base64url. */
  readonly secret: string;
}

const PREFIX = 'cls1';
const FORM = /^cls1\.(?<id>[a-z0-9]{12})\.(?<secret>[A-Za-z0-9_-]{42}[AEIMQUYcgkosw048])$/;
const ID = /^[a-z0-9]{12}$/;

/**
 * Creates an access token of a secret. The text is shown once, and only the result of
 * {@link hashAccessToken} is stored. Unlike a join token, the text names no certificate authority:
 * whoever uses an access token has an identity of the cluster already.
 * @param random - Returns random bytes of cryptographic quality.
 */
export function createAccessToken(
  random: (byteCount: number) => Uint8Array,
): AccessTokenParts & { readonly text: string } {
  const { id, secret } = createIdAndSecret(random);
  return { id, secret, text: formatAccessToken({ id, secret }) };
}

/** Returns the parts of an access token; undefined when the text has not exactly the form of one. */
export function parseAccessToken(text: string): AccessTokenParts | undefined {
  const { id, secret } = FORM.exec(text)?.groups ?? {};
  return id === undefined || secret === undefined ? undefined : { id, secret };
}

function formatAccessToken({ id, secret }: AccessTokenParts): string {
  return [PREFIX, id, secret].join('.');
}

/** Returns true for a text with the form of the id of an access token. */
export function isAccessTokenId(text: string): boolean {
  return ID.test(text);
}

/**
 * Returns true when a text may contain an access token, also one that was changed or cut. Such a text
 * must not be stored or shown.
 */
export function mayContainAccessToken(text: string): boolean {
  return text.toLowerCase().includes(`${PREFIX}.`);
}

/**
 * Returns what is stored of an access token: HMAC-SHA-256 of its text, 32 bytes.
 * @param key - The key of the cluster that authenticates, 32 bytes.
 */
export function hashAccessToken(key: Uint8Array, token: AccessTokenParts): Uint8Array {
  return hashText(key, formatAccessToken(token));
}

/**
 * Returns true when `stored` is the hash of an access token. Takes the same time for every secret.
 * @param stored - Result of {@link hashAccessToken}; any other length does not match.
 */
export function matchesAccessToken(
  key: Uint8Array,
  stored: Uint8Array,
  token: AccessTokenParts,
): boolean {
  return equalHashes(stored, hashAccessToken(key, token));
}

/** Returns true for an access token without uses left. */
export function isUsedUp({
  maxUses,
  useCount,
}: {
  /** -1: no limit. */
  readonly maxUses: number;
  readonly useCount: number;
}): boolean {
  return maxUses >= 0 && useCount >= maxUses;
}
