import { Event_Category as Category, Event_Severity as Severity } from '@cloudless/api';
import type { AccessTokenRecord, SecretRecord } from '@cloudless/api/store';
import { CloudlessError } from '@cloudless/base';
import type { ClusterView, Stored, Transaction } from '@cloudless/cluster-state';
import { isLive, listLiveTokens, revokeToken } from './access-token.js';
import { toSecretKey } from './secret-lookup.js';

/**
 * Access tokens that one transaction revokes or deletes. A transaction has 100 writes at most, of
 * which the deletion of a secret with all its versions needs 30.
 */
export const MAX_TOKENS_PER_COMMIT = 60;

/** Adds the revocation of tokens, which must be as they were read, to a transaction. */
export function putRevocations(
  transaction: Transaction,
  secret: SecretRecord,
  tokens: readonly Stored<AccessTokenRecord>[],
  nowMs: number,
): Transaction {
  if (tokens.length === 0) return transaction;
  for (const stored of tokens) {
    const id = stored.value.token?.id ?? '';
    transaction
      .require('accesstoken', id, stored)
      .put('accesstoken', id, revokeToken(stored.value, nowMs));
  }
  const ids = tokens.map(({ value }) => value.token?.id ?? '');
  const which = ids.length === 1 ? `access token ${ids.join()}` : `${ids.length} access tokens`;
  return transaction.event({
    severity: Severity.INFO,
    category: Category.SECURITY,
    namespace: secret.namespace,
    reason: 'AccessTokensRevoked',
    message: `${which} of secret ${toSecretKey(secret)} ${ids.length === 1 ? 'was' : 'were'} revoked`,
  });
}

/**
 * Lists the token records that are deleted with a secret: those that have ended first, so that an
 * interrupted deletion takes no more than it must.
 * @throws reason STILL_USED when tokens are valid and `revoke` is false.
 */
export function listTokensToDelete(
  view: ClusterView,
  secret: SecretRecord,
  { revoke, nowMs }: { readonly revoke: boolean; readonly nowMs: number },
): readonly Stored<AccessTokenRecord>[] {
  const live = listLiveTokens(view, secret, nowMs);
  if (live.length > 0 && !revoke) {
    const tokens =
      live.length === 1 ? '1 valid access token' : `${live.length} valid access tokens`;
    throw new CloudlessError(
      'STILL_USED',
      `secret "${toSecretKey(secret)}" has ${tokens}; to revoke the tokens and delete the secret, set revoke_tokens`,
    );
  }
  const ended = [...view.accessTokensOf(secret.uid)].filter(({ value }) => !isLive(value, nowMs));
  return [...ended, ...live];
}

/** Adds the deletion of tokens to a transaction. */
export function putTokenDeletions(
  transaction: Transaction,
  tokens: readonly Stored<AccessTokenRecord>[],
): Transaction {
  for (const { value } of tokens) transaction.delete('accesstoken', value.token?.id ?? '');
  return transaction;
}
