import { clone, create } from '@bufbuild/protobuf';
import { timestampFromMs, timestampMs, type Timestamp } from '@bufbuild/protobuf/wkt';
import { AccessTokenSchema } from '@cloudless/api';
import {
  AccessTokenRecordSchema,
  type AccessTokenRecord,
  type SecretRecord,
} from '@cloudless/api/store';
import type { ClusterView, Stored } from '@cloudless/cluster-state';
import {
  isUsedUp,
  matchesAccessToken,
  parseAccessToken,
  type Principal,
} from '@cloudless/identity';
import { allowsAudience, isExpired } from './secret-lookup.js';

/** Why an access token is refused: the cause in audit records, which the caller does not learn. */
export type AccessTokenRefusal =
  | 'malformed token'
  | 'unknown token'
  | 'tampered token'
  | 'other secret'
  | 'other audience'
  | 'other identity'
  | 'audience no longer permitted'
  | 'revoked'
  | 'expired'
  | 'used up'
  | 'expired secret';

/** The use of an access token. */
export interface AccessTokenUse {
  /** Audience in the request. */
  readonly audience: string;
  /** The caller. */
  readonly principal: Principal;
  /** Wall-clock milliseconds. */
  readonly nowMs: number;
}

/** Judgement of {@link judgeAccessToken}. */
export type AccessTokenJudgement =
  { readonly kind: 'accepted' } | { readonly kind: 'refused'; readonly cause: AccessTokenRefusal };

/** Audiences that name an identity; all others are names that the holder has to know. */
const IDENTITY = /^(?:workload|service|user)\//;
/** Audiences of routes. Nodes receive the secrets of routes without access tokens. */
const RESERVED = /^route\//;

/** Returns true for an audience that no access token may have. */
export function isReservedAudience(audience: string): boolean {
  return RESERVED.test(audience);
}

/**
 * Judges one use of an access token whose text has been verified. Causes that concern another secret,
 * audience or identity come before those that tell something about the token.
 * @param record - The token as it is stored now. The transaction that counts the use must require
 *   this revision.
 * @param secret - The secret of the request as it is stored now. Undefined: there is none.
 */
export function judgeAccessToken(
  record: AccessTokenRecord,
  secret: SecretRecord | undefined,
  { audience, principal, nowMs }: AccessTokenUse,
): AccessTokenJudgement {
  const { token } = record;
  if (secret === undefined || secret.uid !== record.secretUid) return refuse('other secret');
  if (token === undefined || audience === '' || token.audience !== audience)
    return refuse('other audience');
  if (!isPermittedIdentity(audience, principal)) return refuse('other identity');
  if (record.revokedAt !== undefined) return refuse('revoked');
  if (!allowsAudience(secret, audience)) return refuse('audience no longer permitted');
  if (token.expiresAt === undefined || nowMs >= timestampMs(token.expiresAt))
    return refuse('expired');
  if (isUsedUp(token)) return refuse('used up');
  return isExpired(secret, nowMs) ? refuse('expired secret') : { kind: 'accepted' };
}

const refuse = (cause: AccessTokenRefusal) => ({ kind: 'refused', cause }) as const;

/**
 * Returns true when a caller may use a token for an audience. In a cluster without TLS, the caller
 * may use tokens for every identity. Nobody may use a token for a route.
 */
function isPermittedIdentity(audience: string, principal: Principal): boolean {
  if (isReservedAudience(audience)) return false;
  switch (principal.kind) {
    case 'anonymous-loopback':
      return true;
    case 'user':
    case 'workload':
    case 'service':
      return !IDENTITY.test(audience) || principal.name === audience;
    default:
      return false;
  }
}

/** Returns true for a token that is not revoked, has not expired and has uses left. */
export function isLive(record: AccessTokenRecord, nowMs: number): boolean {
  const { token, revokedAt } = record;
  return (
    revokedAt === undefined &&
    token?.expiresAt !== undefined &&
    nowMs < timestampMs(token.expiresAt) &&
    !isUsedUp(token)
  );
}

/** Returns the live tokens of a secret, by time of creation. */
export function listLiveTokens(
  view: Pick<ClusterView, 'accessTokensOf'>,
  { uid }: SecretRecord,
  nowMs: number,
): readonly Stored<AccessTokenRecord>[] {
  return [...view.accessTokensOf(uid)]
    .filter(({ value }) => isLive(value, nowMs))
    .sort((left, right) => compare(toSortKey(left.value), toSortKey(right.value)));
}

function toSortKey({ token }: AccessTokenRecord): string {
  const atMs = token?.createdAt === undefined ? 0 : timestampMs(token.createdAt);
  return `${String(atMs).padStart(16, '0')} ${token?.id ?? ''}`;
}

const compare = (left: string, right: string): number => (left < right ? -1 : 1);

/** Returns a copy of the record that counts one more use. */
export function countUse(record: AccessTokenRecord): AccessTokenRecord {
  const next = clone(AccessTokenRecordSchema, record);
  next.token = create(AccessTokenSchema, next.token);
  next.token.useCount += 1;
  return next;
}

/** Returns a copy of the record that is revoked. */
export function revokeToken(record: AccessTokenRecord, nowMs: number): AccessTokenRecord {
  const next = clone(AccessTokenRecordSchema, record);
  next.revokedAt = timestampFromMs(nowMs);
  return next;
}

/** Stand for the stored hash of an unknown token, and for the key of a cluster without secrets. */
const NO_HMAC = new Uint8Array(32);
const NO_KEY = new Uint8Array(32);

/** Result of {@link findAccessToken}. */
export type AccessTokenSearch =
  | { readonly kind: 'found'; readonly id: string; readonly record: Stored<AccessTokenRecord> }
  | {
      readonly kind: 'refused';
      readonly cause: AccessTokenRefusal;
      /** Id in the text; empty when the text has not the form of an access token. */
      readonly id: string;
    };

/**
 * Finds the record of an access token and verifies the secret in the text. Takes the same time for an
 * unknown id and for a wrong secret.
 * @param mac - The key of the cluster that authenticates. Undefined: the cluster has no secrets.
 */
export function findAccessToken(
  view: Pick<ClusterView, 'accessToken'>,
  mac: Uint8Array | undefined,
  text: string,
): AccessTokenSearch {
  const token = parseAccessToken(text);
  if (token === undefined) return { kind: 'refused', cause: 'malformed token', id: '' };
  const { id } = token;
  const record = view.accessToken(id);
  const matches = matchesAccessToken(mac ?? NO_KEY, record?.value.hmac ?? NO_HMAC, token);
  if (record === undefined) return { kind: 'refused', cause: 'unknown token', id };
  if (!matches || mac === undefined) return { kind: 'refused', cause: 'tampered token', id };
  return { kind: 'found', id, record };
}

/** The fields of ValidateAccessTokenResponse that describe a token. */
export interface TokenValidity {
  /** Empty: the token is valid. */
  readonly reason: '' | 'expired' | 'used up' | 'revoked' | 'unknown';
  /** Undefined when the reason is `unknown`. */
  readonly expiresAt?: Timestamp | undefined;
  /** -1: no limit. */
  readonly usesRemaining: number;
}

const REASONS: Readonly<Partial<Record<AccessTokenRefusal, TokenValidity['reason']>>> = {
  revoked: 'revoked',
  'audience no longer permitted': 'revoked',
  expired: 'expired',
  'expired secret': 'expired',
  'used up': 'used up',
};

/** Returns what the holder of a token learns: of a token for something else, that it is unknown. */
export function describeValidity(
  judgement: AccessTokenJudgement,
  record: AccessTokenRecord | undefined,
  secret: SecretRecord | undefined,
): TokenValidity {
  const reason = judgement.kind === 'accepted' ? '' : (REASONS[judgement.cause] ?? 'unknown');
  const token = record?.token;
  if (reason === 'unknown' || token === undefined) return { reason: 'unknown', usesRemaining: 0 };
  const ends = [token.expiresAt, secret?.expiresAt].flatMap((end) => end ?? []);
  ends.sort((left, right) => timestampMs(left) - timestampMs(right));
  const usesRemaining = token.maxUses < 0 ? -1 : Math.max(0, token.maxUses - token.useCount);
  return { reason, expiresAt: ends[0], usesRemaining: reason === 'revoked' ? 0 : usesRemaining };
}
