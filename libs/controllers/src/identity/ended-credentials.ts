import { timestampMs } from '@bufbuild/protobuf/wkt';
import type { JoinToken, UserCredential } from '@cloudless/api';
import type { ClusterView, Stored } from '@cloudless/cluster-state';

/** Time for which ended tokens and credentials are still listed: 30 days. */
const RETENTION_MS = 30 * 24 * 3_600_000;

/** A record that may be deleted. */
export interface EndedCredential {
  readonly kind: 'jointoken' | 'credential';
  readonly id: string;
  /** The record as it was read; the deletion requires it to be unchanged. */
  readonly unchangedSince: Stored<unknown>;
}

/**
 * Lists the join tokens and credentials of users that expired or were revoked more than 30 days ago.
 * No token or certificate of them can be used any more: without a record they are unknown, and an
 * unknown one is refused as well. A credential stays as long as another one was issued for it,
 * because the revocation of a token ends the certificates of the token.
 */
export function listEndedCredentials(
  view: Pick<ClusterView, 'joinTokens' | 'credentials'>,
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
  return ended;
}

function isOver(nowMs: number, { expiresAt, revokedAt }: JoinToken | UserCredential): boolean {
  return [expiresAt, revokedAt].some(
    (time) => time !== undefined && nowMs - timestampMs(time) > RETENTION_MS,
  );
}
