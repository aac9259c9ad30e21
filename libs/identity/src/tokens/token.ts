import { createHmac, timingSafeEqual } from 'node:crypto';

/** `join` admits a node, `user` authenticates a user. */
export type TokenKind = 'join' | 'user';

/** The parts of a token. */
export interface Token {
  readonly kind: TokenKind;
  /** Names the token in lists and records; 12 lower-case letters and digits. Not secret. */
  readonly id: string;
  /** 256 random bits as 43 characters of base64url. */
  readonly secret: string;
  /**
   * SHA-256 of each root certificate (DER) that the holder accepts, as 64 lower-case hex digits. The
   * holder checks the server before the token is sent. One root, or two for a token that was created
   * during a rotation of the certificate authority: the retiring root, then the new root.
   */
  readonly caSha256s: readonly string[];
}

const PREFIXES: Readonly<Record<TokenKind, string>> = { join: 'cl1', user: 'clu1' };

const ID_LENGTH = 12;
const ID_COUNT = 36n ** BigInt(ID_LENGTH);
/** Twice the bits of an id, so that all ids are nearly equally likely. */
const ID_RANDOM_BYTES = 16;
const SECRET_BYTES = 32;

/**
 * The last character of the secret carries 4 bits, so only 16 characters are possible there. A
 * cluster has two roots at most, during a rotation.
 */
const TOKEN =
  /^(?<prefix>clu?1)\.(?<id>[a-z0-9]{12})\.(?<secret>[A-Za-z0-9_-]{42}[AEIMQUYcgkosw048])\.(?<roots>[0-9a-f]{64}(?:\.[0-9a-f]{64})?)$/;

/** Returns the parts of a token; undefined when the text has not exactly the form of a token. */
export function parseToken(text: string): Token | undefined {
  const parts = TOKEN.exec(text)?.groups;
  if (parts === undefined) return undefined;
  const { prefix = '', id = '', secret = '', roots = '' } = parts;
  return {
    kind: prefix === PREFIXES.join ? 'join' : 'user',
    id,
    secret,
    caSha256s: roots.split('.'),
  };
}

/**
 * Creates a token. The text is shown once, and only the result of {@link hashToken} is stored.
 * @param random - Returns random bytes of cryptographic quality.
 * @param caSha256s - See {@link Token}.
 */
export function createToken(
  kind: TokenKind,
  random: (byteCount: number) => Uint8Array,
  caSha256s: readonly string[],
): { readonly id: string; readonly secret: string; readonly text: string } {
  const { id, secret } = createIdAndSecret(random);
  return { id, secret, text: formatToken({ kind, id, secret, caSha256s }) };
}

/** Creates the id and the secret of a token of any form; see {@link Token}. */
export function createIdAndSecret(random: (byteCount: number) => Uint8Array): {
  readonly id: string;
  readonly secret: string;
} {
  const idBits = BigInt(`0x${Buffer.from(random(ID_RANDOM_BYTES)).toString('hex')}`);
  const id = (idBits % ID_COUNT).toString(36).padStart(ID_LENGTH, '0');
  const secret = Buffer.from(random(SECRET_BYTES)).toString('base64url');
  return { id, secret };
}

/** Returns the text of a token. */
export function formatToken({ kind, id, secret, caSha256s }: Token): string {
  return [PREFIXES[kind], id, secret, ...caSha256s].join('.');
}

/**
 * Returns what is stored of a token: HMAC-SHA-256 of kind, id and secret, 32 bytes.
 * @param tokenSecret - The key of the cluster, at least 32 bytes.
 */
export function hashToken(
  tokenSecret: Uint8Array,
  kind: TokenKind,
  id: string,
  secret: string,
): Uint8Array {
  return hashText(tokenSecret, `${PREFIXES[kind]}.${id}.${secret}`);
}

/** Returns HMAC-SHA-256 of a text, 32 bytes. */
export function hashText(key: Uint8Array, text: string): Uint8Array {
  return new Uint8Array(createHmac('sha256', key).update(text).digest());
}

/** Compares two hashes in the same time for every content; hashes of other lengths differ. */
export function equalHashes(left: Uint8Array, right: Uint8Array): boolean {
  return left.length === right.length && timingSafeEqual(left, right);
}

/**
 * Returns true when `stored` is the hash of a token. Takes the same time for every secret.
 * @param stored - Result of {@link hashToken}; any other length does not match.
 */
export function matchesToken(
  tokenSecret: Uint8Array,
  stored: Uint8Array,
  kind: TokenKind,
  id: string,
  secret: string,
): boolean {
  return equalHashes(stored, hashToken(tokenSecret, kind, id, secret));
}
