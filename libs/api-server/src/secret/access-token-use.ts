import { create } from '@bufbuild/protobuf';
import {
  GetSecretResponseSchema,
  type GetSecretRequest,
  type GetSecretResponse,
  type Secret,
} from '@cloudless/api';
import type { SecretRecord } from '@cloudless/api/store';
import { InvalidInputError } from '@cloudless/base';
import type { Stored } from '@cloudless/cluster-state';
import type { AuditEntry } from '../audit/audit-log.js';
import { RefusedCallError } from '../access/refusal.js';
import { retryOnConflict } from '../mutation/retry-on-conflict.js';
import {
  countUse,
  findAccessToken,
  judgeAccessToken,
  type AccessTokenRefusal,
  type AccessTokenSearch,
} from './access-token.js';
import type { SecretHandlersDeps } from './secret-handlers.js';
import { presentSecret, toSecretKey } from './secret-lookup.js';

/** Message for every refused access token, whatever the cause, so that no caller can probe tokens. */
export const ACCESS_TOKEN_REFUSED =
  'the access token does not permit reading this secret: the secret or the token does not exist, ' +
  'the token is for another secret, audience or identity, or is expired, used up or revoked; ' +
  'users with the role viewer in the namespace find the cause in the audit log of the secret';

/** Reads the values of secrets with access tokens. */
export class AccessTokenUses {
  constructor(private readonly deps: SecretHandlersDeps) {}

  /**
   * Handles GetSecret with an access token. Each call that arrives counts one use, also when its
   * client does not get the reply and calls again. The values are read before the use is counted, and
   * the use is committed, together with the audit record, before the reply.
   * @throws reason PERMISSION_DENIED with the same message for every cause; `SECRET_NOT_FOUND` when
   *   the token is valid and the version is not kept; `NO_SECRETS_KEY`. No use is counted then.
   */
  async readValues(request: GetSecretRequest, entry: AuditEntry): Promise<GetSecretResponse> {
    requireAudience(request);
    entry.describe({ audience: toAuditAudience(request.audience) });
    const subject = `secret "${toSecretKey(request)}"`;
    const { keys, state, mutex } = this.deps;
    const ring = await keys.open(state.view());
    // Only valid tokens may wait for their turn.
    this.require(request, entry, ring?.mac);
    return mutex.run(subject, () =>
      retryOnConflict({ ...this.deps, subject }, () => this.useOnce(request, entry, ring?.mac)),
    );
  }

  private async useOnce(
    request: GetSecretRequest,
    entry: AuditEntry,
    mac: Uint8Array | undefined,
  ): Promise<GetSecretResponse> {
    const { state, values } = this.deps;
    const view = state.view();
    const { token, secret } = this.require(request, entry, mac);
    const { namespace, name } = secret.value;
    const { version, data } = await values.read(view, namespace, name, request.version);
    entry.describe({ secretVersions: [version] });
    const { id, record } = token;
    await entry.commit(
      state
        .transaction()
        .require('accesstoken', id, record)
        .require('secret', toSecretKey(request), secret)
        .put('accesstoken', id, countUse(record.value)),
    );
    return create(GetSecretResponseSchema, {
      ...{ version, data: Object.fromEntries(data) },
      secret: presentForHolder(secret.value, version),
    });
  }

  /** @throws {@link RefusedCallError} for a token that does not permit the call now. */
  private require(
    request: GetSecretRequest,
    entry: AuditEntry,
    mac: Uint8Array | undefined,
  ): {
    readonly token: Extract<AccessTokenSearch, { kind: 'found' }>;
    readonly secret: Stored<SecretRecord>;
  } {
    const view = this.deps.state.view();
    const token = findAccessToken(view, mac, request.accessToken);
    const secret = view.secret(toSecretKey(request));
    entry.describe({ accessTokenId: token.id });
    if (token.kind === 'refused') throw createRefusal(token.cause);
    const judgement = judgeAccessToken(token.record.value, secret?.value, {
      audience: request.audience,
      principal: entry.caller.principal,
      nowMs: this.deps.clock.wallTime(),
    });
    if (judgement.kind === 'refused') throw createRefusal(judgement.cause);
    if (secret === undefined) throw createRefusal('other secret');
    return { token, secret };
  }
}

function createRefusal(cause: AccessTokenRefusal): RefusedCallError {
  return new RefusedCallError(cause, 'PERMISSION_DENIED', ACCESS_TOKEN_REFUSED);
}

/** @throws kind `invalid` when a request with an access token has no audience. */
function requireAudience({ audience }: GetSecretRequest): void {
  if (audience !== '') return;
  const message = 'is required with access_token; name the audience of the token';
  throw new InvalidInputError([{ field: 'audience', message }]);
}

/** @throws kind `invalid` for fields that need an access token, in a request without one. */
export function requireNoTokenFields({ audience, version }: GetSecretRequest): void {
  const message = 'needs access_token; without an access token, no values are returned';
  const violations = [
    ...(audience === '' ? [] : [{ field: 'audience', message }]),
    ...(version === 0 ? [] : [{ field: 'version', message }]),
  ];
  if (violations.length > 0) throw new InvalidInputError(violations);
}

/**
 * Returns an audience as audit records contain it: empty for what no token has as its audience, and
 * for the text of a token that was sent in the wrong field.
 */
export function toAuditAudience(audience: string): string {
  return /^[A-Za-z0-9._:/@-]+$/.test(audience) && !/cl[us]?1\./i.test(audience) ? audience : '';
}

/** Builds the message of a secret for the holder of a token, who may have no role: without others. */
function presentForHolder(record: SecretRecord, version: number): Secret {
  const secret = presentSecret(record);
  secret.audiences = [];
  secret.versions = record.versions.filter((kept) => kept.version === version);
  return secret;
}
