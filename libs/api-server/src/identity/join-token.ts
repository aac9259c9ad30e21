import { clone, create } from '@bufbuild/protobuf';
import { timestampFromMs, timestampMs } from '@bufbuild/protobuf/wkt';
import { JoinTokenUseSchema } from '@cloudless/api';
import {
  JoinTokenBindingSchema,
  JoinTokenRecordSchema,
  type JoinTokenRecord,
} from '@cloudless/api/store';
import { matchesToken, parseToken } from '@cloudless/identity';
import type { ClusterView, Stored } from '@cloudless/cluster-state';
import { isInNetworks } from './networks.js';
import { matchesNodeId } from './node-id-pattern.js';

/** Why a join token is refused: label of a metric, and cause in the audit event. */
export type TokenRefusal =
  | 'empty token'
  | 'malformed token'
  | 'unknown token'
  | 'tampered token'
  | 'token of another authority'
  | 'revoked token'
  | 'expired token'
  | 'used up token'
  | 'token for other node ids'
  | 'token for other networks';

/** The machine that uses a token. */
export interface TokenUse {
  /** Wall-clock milliseconds. */
  readonly nowMs: number;
  readonly nodeId: string;
  readonly instanceId: string;
  /** SHA-256 of the public key of the request, hexadecimal. */
  readonly publicKeySha256: string;
  /** Address of the machine. Empty: not known. */
  readonly address: string;
  /** The record of the node shows that this machine and key have joined with the token. */
  readonly hasJoined?: boolean;
}

/** Judgement of the use of a join token. */
export type TokenJudgement =
  /** A new use, which counts. */
  | { readonly kind: 'accepted' }
  /** The same machine and key have used the token before: a retry, which does not count. */
  | { readonly kind: 'replayed' }
  | { readonly kind: 'refused'; readonly cause: TokenRefusal };

/**
 * Uses that a record keeps, the newest ones: enough to bind the retries of machines that join at
 * the same time, without a list of all machines that grows with each join.
 */
export const MAX_KEPT_USES = 100;

/** Lifetime of a join token by default: 24 h. */
export const DEFAULT_TOKEN_LIFETIME_MS = 24 * 3_600_000;

/**
 * Judges one use of a join token whose secret has been verified.
 * @param record - The token as it is stored now. The transaction that counts the use must require
 *   this revision.
 */
export function judgeTokenUse(record: JoinTokenRecord, use: TokenUse): TokenJudgement {
  const { token } = record;
  if (token?.expiresAt === undefined) return { kind: 'refused', cause: 'expired token' };
  if (token.revokedAt !== undefined) return { kind: 'refused', cause: 'revoked token' };
  if (use.nowMs >= timestampMs(token.expiresAt)) return { kind: 'refused', cause: 'expired token' };
  if (!matchesNodeId(token.nodeIdPattern, use.nodeId))
    return { kind: 'refused', cause: 'token for other node ids' };
  if (!isInNetworks(token.cidrs, use.address))
    return { kind: 'refused', cause: 'token for other networks' };
  const isBound = record.bindings.some(
    ({ instanceId, publicKeySha256, nodeId }) =>
      instanceId === use.instanceId &&
      publicKeySha256 === use.publicKeySha256 &&
      nodeId === use.nodeId,
  );
  if (isBound || use.hasJoined === true) return { kind: 'replayed' };
  return token.useCount < token.maxUses
    ? { kind: 'accepted' }
    : { kind: 'refused', cause: 'used up token' };
}

/** Returns a copy of the record that counts an accepted use. */
export function countTokenUse(record: JoinTokenRecord, use: TokenUse): JoinTokenRecord {
  const next = clone(JoinTokenRecordSchema, record);
  const { token } = next;
  if (token === undefined) return next;
  const { nodeId, instanceId, publicKeySha256, address, nowMs } = use;
  token.useCount += 1;
  token.uses = [
    ...token.uses,
    create(JoinTokenUseSchema, { nodeId, at: timestampFromMs(nowMs), address }),
  ].slice(-MAX_KEPT_USES);
  next.bindings = [
    ...next.bindings,
    create(JoinTokenBindingSchema, { instanceId, publicKeySha256, nodeId }),
  ].slice(-MAX_KEPT_USES);
  return next;
}

/** Stands for the stored hash of an unknown token. No token has this hash. */
const NO_HMAC = new Uint8Array(32);

/** Result of {@link findJoinToken}. */
export type TokenSearch =
  | { readonly kind: 'found'; readonly record: Stored<JoinTokenRecord> }
  | {
      readonly kind: 'refused';
      readonly cause: TokenRefusal;
      /** Id of the token; empty when the text has not the form of a token. */
      readonly id: string;
    };

/** What {@link findJoinToken} compares a token with. */
export interface TokenSecrets {
  readonly tokenSecret: Uint8Array;
  /** SHA-256 of each trusted root, hexadecimal. */
  readonly rootSha256s: readonly string[];
}

/**
 * Finds the record of a join token and verifies the secret. Takes the same time for an unknown id
 * and for a wrong secret.
 */
export function findJoinToken(
  view: Pick<ClusterView, 'joinToken'>,
  { tokenSecret, rootSha256s }: TokenSecrets,
  text: string,
): TokenSearch {
  if (text === '') return { kind: 'refused', cause: 'empty token', id: '' };
  const token = parseToken(text);
  if (token?.kind !== 'join') return { kind: 'refused', cause: 'malformed token', id: '' };
  const { id, secret, caSha256s } = token;
  const record = view.joinToken(id);
  const matches = matchesToken(tokenSecret, record?.value.hmac ?? NO_HMAC, 'join', id, secret);
  if (record === undefined) return { kind: 'refused', cause: 'unknown token', id };
  if (!matches) return { kind: 'refused', cause: 'tampered token', id };
  if (!caSha256s.some((caSha256) => rootSha256s.includes(caSha256)))
    return { kind: 'refused', cause: 'token of another authority', id };
  return { kind: 'found', record };
}

/** Message for every refused join token, whatever the cause, so that no caller can probe tokens. */
export const INVALID_JOIN_TOKEN =
  'the join token is not valid: it is unknown, expired, revoked, used up, or not for this machine; create another token with "cloudlessctl token create", or read the cause in "cloudlessctl events --audit"';
