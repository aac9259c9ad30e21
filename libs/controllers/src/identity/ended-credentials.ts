import { timestampMs } from '@bufbuild/protobuf/wkt';
import type { JoinToken, UserCredential } from '@cloudless/api';
import type { AccessTokenRecord } from '@cloudless/api/store';
import { toSecretKeyId, type ClusterView, type Stored } from '@cloudless/cluster-state';
import { isUsedUp } from '@cloudless/identity';

/** Time for which ended tokens and credentials are still listed: 30 days. */
const RETENTION_MS = 30 * 24 * 3_600_000;
/**
 * Ended access tokens that are kept, the newest ones: as many as there may be valid tokens. Programs
 * create tokens all the time, and each is a record in memory.
 */
const KEPT_ACCESS_TOKENS = 10_000;

/** A record that may be deleted. */
export interface EndedCredential {
  readonly kind: 'jointoken' | 'credential' | 'accesstoken';
  readonly id: string;
  /** The record as it was read; the deletion requires it to be unchanged. */
  readonly unchangedSince: Stored<unknown>;
}

/**
 * Lists the join tokens, access tokens and credentials of users that expired or were revoked more
 * than 30 days ago, the oldest ended access tokens beyond 10,000, and the access tokens of secrets
 * that no longer exist.
 * No token or certificate of them can be used any more: without a record they are unknown, and an
 * unknown one is refused as well. A credential stays as long as another one was issued for it,
 * because the revocation of a token ends the certificates of the token.
 */
export function listEndedCredentials(
  view: Pick<ClusterView, 'joinTokens' | 'credentials' | 'accessTokens' | 'secret'>,
  nowMs: number,
): readonly EndedCredential[] {
  const ended: EndedCredential[] = [];
  for (const stored of view.joinTokens()) {
    const { token } = stored.value;
    if (token !== undefined && isOver(nowMs, token))
      ended.push({ kind: 'jointoken', id: token.id, unchangedSince: stored });
  }
  const credentials = [...view.credentials()];
  const parents = new Set(credentials.map(({ value }) => value.credential?.tokenId));
  for (const stored of credentials) {
    const { credential } = stored.value;
    if (credential !== undefined && !parents.has(credential.id) && isOver(nowMs, credential))
      ended.push({ kind: 'credential', id: credential.id, unchangedSince: stored });
  }
  return [...ended, ...listEndedAccessTokens(view, nowMs)];
}

function listEndedAccessTokens(
  view: Pick<ClusterView, 'accessTokens' | 'secret'>,
  nowMs: number,
): readonly EndedCredential[] {
  const removed: Stored<AccessTokenRecord>[] = [];
  const kept: { readonly stored: Stored<AccessTokenRecord>; readonly endedAtMs: number }[] = [];
  for (const stored of view.accessTokens()) {
    const endedAtMs = toEndMs(stored.value);
    const secret = view.secret(toSecretKeyId(stored.value.namespace, stored.value.name));
    const isOrphan = secret?.value.uid !== stored.value.secretUid;
    if (isOrphan || nowMs - endedAtMs > RETENTION_MS) removed.push(stored);
    else if (endedAtMs <= nowMs) kept.push({ stored, endedAtMs });
  }
  kept.sort((left, right) => right.endedAtMs - left.endedAtMs);
  for (const { stored } of kept.slice(KEPT_ACCESS_TOKENS)) removed.push(stored);
  return removed.map((stored) => ({
    ...{ kind: 'accesstoken', unchangedSince: stored },
    id: stored.value.token?.id ?? '',
  }));
}

/**
 * Returns the end of an access token, wall-clock milliseconds. The time of the last use is not
 * stored: a token that is used up counts as ended since its creation, at most 24 h too early.
 */
function toEndMs({ token, revokedAt }: AccessTokenRecord): number {
  const usedUpAt = token !== undefined && isUsedUp(token) ? token.createdAt : undefined;
  const ends = [token?.expiresAt, revokedAt, usedUpAt];
  const times = ends.flatMap((time) => time ?? []).map(timestampMs);
  return times.length === 0 ? 0 : Math.min(...times);
}

function isOver(nowMs: number, { expiresAt, revokedAt }: JoinToken | UserCredential): boolean {
  return [expiresAt, revokedAt].some(
    (time) => time !== undefined && nowMs - timestampMs(time) > RETENTION_MS,
  );
}
