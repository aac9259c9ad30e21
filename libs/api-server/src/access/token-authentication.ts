import { matchesToken, parseToken } from '@cloudless/identity';
import { UserCredential_Kind as CredentialKind } from '@cloudless/api';
import type { CredentialRecord } from '@cloudless/api/store';
import type { ClusterView } from '@cloudless/cluster-state';
import { isAtOrAfter } from './is-at-or-after.js';
import { RefusedCallError, type RefusalCause, type RefusedCredential } from './refusal.js';

/**
 * One message for every token that is refused: whoever guesses tokens does not learn how near the
 * guess was. The cause is in the audit record.
 */
const BAD_TOKEN =
  'the bearer token is not valid; log in again, or ask an administrator for a new token';

/**
 * Returns the token in the header `Authorization`; undefined without the header.
 * @throws {@link RefusedCallError} for a header of another form than `Bearer <token>`.
 */
export function readBearerToken(header: Headers): string | undefined {
  const value = header.get('authorization');
  if (value === null) return undefined;
  const [, text = ''] = /^Bearer(?: +(.*))?$/i.exec(value.trim()) ?? [];
  if (text !== '') return text;
  throw createTokenError(/^(Bearer)?$/i.test(value.trim()) ? 'empty token' : 'malformed token');
}

/** Returns the error for a refused token. */
export function createTokenError(
  cause: RefusalCause,
  refused: RefusedCredential = {},
): RefusedCallError {
  return new RefusedCallError(cause, 'INVALID_TOKEN', BAD_TOKEN, refused);
}

/**
 * Returns the id of the credential that a bearer token belongs to. Compares the secret only; call
 * {@link requireUsableToken} before each use.
 * @throws {@link RefusedCallError} when the token is malformed, unknown or tampered with.
 */
export function findTokenCredential(
  view: ClusterView,
  tokenSecret: Uint8Array,
  text: string,
): string {
  const token = parseToken(text);
  if (token?.kind !== 'user') throw createTokenError('malformed token');
  const record = view.credential(token.id)?.value;
  const isToken = record?.credential?.kind === CredentialKind.TOKEN;
  const hmac = isToken ? record.hmac : new Uint8Array(32);
  // Compares also for an unknown token, so that the time of the answer tells nothing.
  const matches = matchesToken(tokenSecret, hmac, 'user', token.id, token.secret);
  if (!isToken) throw createTokenError('unknown token');
  if (!matches) throw createTokenError('tampered token', toRefused(record));
  return token.id;
}

/**
 * Returns the credential of a token.
 * @throws {@link RefusedCallError} when it was revoked or has expired, or its user was deleted.
 */
export function requireUsableToken(
  view: ClusterView,
  credentialId: string,
  nowMs: number,
): CredentialRecord {
  const record = view.credential(credentialId)?.value;
  const credential = record?.credential;
  if (credential === undefined) throw createTokenError('unknown token', { credentialId });
  const refused = toRefused(record);
  if (credential.revokedAt !== undefined) throw createTokenError('revoked token', refused);
  if (isAtOrAfter(nowMs, credential.expiresAt)) throw createTokenError('expired token', refused);
  if (view.user(credential.user) === undefined)
    throw createTokenError('token of a deleted user', refused);
  return record as CredentialRecord;
}

function toRefused(record: CredentialRecord | undefined): RefusedCredential {
  const { id = '', user = '' } = record?.credential ?? {};
  return { credentialId: id, principal: `user/${user}` };
}
