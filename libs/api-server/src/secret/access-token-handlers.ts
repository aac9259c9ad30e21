import { create } from '@bufbuild/protobuf';
import { durationMs, timestampFromMs } from '@bufbuild/protobuf/wkt';
import {
  AccessTokenSchema,
  Event_Category as Category,
  Event_Severity as Severity,
  GenerateAccessTokenResponseSchema,
  RevokeAccessTokenResponseSchema,
  ValidateAccessTokenResponseSchema,
  type GenerateAccessTokenRequest,
  type GenerateAccessTokenResponse,
  type GetSecretAuditLogRequest,
  type GetSecretAuditLogResponse,
  type RevokeAccessTokenRequest,
  type RevokeAccessTokenResponse,
  type ValidateAccessTokenRequest,
  type ValidateAccessTokenResponse,
} from '@cloudless/api';
import {
  AccessTokenRecordSchema,
  type AccessTokenRecord,
  type SecretRecord,
} from '@cloudless/api/store';
import { CloudlessError, InvalidInputError, definedFields } from '@cloudless/base';
import type { ClusterView, Stored } from '@cloudless/cluster-state';
import {
  createAccessToken,
  hashAccessToken,
  isAccessTokenId,
  mayContainAccessToken,
} from '@cloudless/identity';
import type { AuditEntry } from '../audit/audit-log.js';
import { retryOnConflict } from '../mutation/retry-on-conflict.js';
import {
  describeValidity,
  findAccessToken,
  isLive,
  isReservedAudience,
  judgeAccessToken,
  listLiveTokens,
  type AccessTokenJudgement,
} from './access-token.js';
import { toAuditAudience } from './access-token-use.js';
import { readSecretAuditLog } from './secret-audit-log.js';
import type { SecretHandlersDeps } from './secret-handlers.js';
import { allowsAudience, requireSecret, requireUnexpired, toSecretKey } from './secret-lookup.js';
import { MAX_TOKENS_PER_COMMIT, putRevocations } from './token-revocation.js';

const MIN_TTL_MS = 1_000;
const MAX_TTL_MS = 24 * 3_600_000;
const DEFAULT_TTL_MS = 3_600_000;
/** Live tokens of a cluster. Each is a record in memory. */
const MAX_TOKENS = 10_000;

/** Handlers of the calls of SecretsService about access tokens. */
export class AccessTokenHandlers {
  constructor(private readonly deps: SecretHandlersDeps) {}

  /**
   * Creates an access token. Only the hash of its text is stored.
   * @throws kind `invalid` for a ttl, number of uses or audience that is not permitted; reasons
   *   `SECRET_NOT_FOUND`, `SECRET_EXPIRED`; kind `exhausted` when the cluster has too many tokens.
   */
  async generateAccessToken(
    request: GenerateAccessTokenRequest,
    entry: AuditEntry,
  ): Promise<GenerateAccessTokenResponse> {
    const { state, clock, random } = this.deps;
    const ttlMs = parseTtl(request);
    const { audience, maxUses } = request;
    entry.describe({ audience: toAuditAudience(audience) });
    return this.change(request, async () => {
      requireSecret(state.view(), request);
      const { mac } = await this.deps.keys.require(state.view());
      const view = state.view();
      const secret = requireSecret(view, request);
      const nowMs = clock.wallTime();
      requireUnexpired(secret.value, nowMs);
      requirePermitted(secret.value, audience);
      requireRoom(view, nowMs);
      const { id, secret: secretText, text } = createAccessToken((count) => random.bytes(count));
      const token = create(AccessTokenSchema, {
        ...{ id, audience },
        createdAt: timestampFromMs(nowMs),
        createdBy: entry.caller.principal.name,
        expiresAt: timestampFromMs(nowMs + ttlMs),
        maxUses: maxUses === 0 ? 1 : maxUses,
      });
      const { namespace, name, uid: secretUid } = secret.value;
      const record = create(AccessTokenRecordSchema, {
        ...{ token, namespace, name, secretUid },
        hmac: hashAccessToken(mac, { id, secret: secretText }),
      });
      entry.describe({ accessTokenId: id });
      const key = toSecretKey(request);
      await entry.commit(
        state
          .transaction()
          .require('secret', key, secret)
          .require('accesstoken', id, 'absent')
          .put('accesstoken', id, record)
          .event({
            ...{ severity: Severity.INFO, category: Category.SECURITY, namespace },
            reason: 'AccessTokenCreated',
            message: `access token ${id} of secret ${key} was created for ${audience}, ${describeUses(token.maxUses)}`,
          }),
      );
      return create(GenerateAccessTokenResponseSchema, { token, text });
    });
  }

  /**
   * Revokes one token or all tokens of a secret. More than {@link MAX_TOKENS_PER_COMMIT} tokens are
   * revoked in several transactions: those that are revoked stay so when a later one fails.
   * @throws kind `invalid` unless the request names exactly one of the ways; reason
   *   `TOKEN_NOT_FOUND`, `SECRET_NOT_FOUND`.
   */
  async revokeAccessToken(
    request: RevokeAccessTokenRequest,
    entry: AuditEntry,
  ): Promise<RevokeAccessTokenResponse> {
    const { state, clock, keys } = this.deps;
    checkRevocation(request);
    const ring = await keys.open(state.view());
    // Tokens that an earlier attempt has revoked count too.
    let revoked = 0;
    return this.change(request, async () => {
      for (;;) {
        const view = state.view();
        const nowMs = clock.wallTime();
        const { value: secret } = requireSecret(view, request);
        const tokens = request.all
          ? listLiveTokens(view, secret, nowMs)
          : [this.requireToken(view, request, secret, ring?.mac)].filter(({ value }) =>
              isLive(value, nowMs),
            );
        const [only] = tokens;
        if (!request.all && only !== undefined)
          entry.describe({ accessTokenId: only.value.token?.id ?? '' });
        const batch = tokens.slice(0, MAX_TOKENS_PER_COMMIT);
        if (batch.length > 0)
          await entry.commit(putRevocations(state.transaction(), secret, batch, nowMs));
        revoked += batch.length;
        if (batch.length === tokens.length)
          return create(RevokeAccessTokenResponseSchema, { revoked });
      }
    });
  }

  /** Tells the holder of a token whether GetSecret would accept the token now. Counts no use. */
  async validateAccessToken(
    request: ValidateAccessTokenRequest,
    entry: AuditEntry,
  ): Promise<ValidateAccessTokenResponse> {
    const { state, clock, keys } = this.deps;
    const { audience, accessToken } = request;
    entry.describe({ audience: toAuditAudience(audience) });
    const ring = await keys.open(state.view());
    const view = state.view();
    const secret = view.secret(toSecretKey(request))?.value;
    const token = findAccessToken(view, ring?.mac, accessToken);
    entry.describe({ accessTokenId: token.id });
    const record = token.kind === 'found' ? token.record.value : undefined;
    const judgement: AccessTokenJudgement =
      token.kind === 'refused'
        ? token
        : judgeAccessToken(token.record.value, secret, {
            audience,
            principal: entry.caller.principal,
            nowMs: clock.wallTime(),
          });
    if (judgement.kind === 'refused') entry.cause = judgement.cause;
    const { reason, expiresAt, usesRemaining } = describeValidity(judgement, record, secret);
    return create(ValidateAccessTokenResponseSchema, {
      ...{ valid: reason === '', reason, usesRemaining },
      ...definedFields({ expiresAt }),
    });
  }

  async getSecretAuditLog(request: GetSecretAuditLogRequest): Promise<GetSecretAuditLogResponse> {
    const { state, keys } = this.deps;
    await keys.open(state.view());
    return readSecretAuditLog(state.view(), request);
  }

  /** Changes of a secret and of its tokens run one at a time. */
  private change<Result>(
    request: { readonly namespace: string; readonly name: string },
    attempt: () => Promise<Result>,
  ): Promise<Result> {
    const subject = `secret "${toSecretKey(request)}"`;
    this.deps.keys.requireKeyEncryption();
    return this.deps.mutex.run(subject, () => retryOnConflict({ ...this.deps, subject }, attempt));
  }

  /** @throws reason `TOKEN_NOT_FOUND`. Never repeats the text of a token. */
  private requireToken(
    view: ClusterView,
    { tokenId, accessToken }: RevokeAccessTokenRequest,
    secret: SecretRecord,
    mac: Uint8Array | undefined,
  ): Stored<AccessTokenRecord> {
    let record: Stored<AccessTokenRecord> | undefined;
    if (tokenId !== '') record = view.accessToken(tokenId);
    else {
      const found = findAccessToken(view, mac, accessToken);
      if (found.kind === 'found') ({ record } = found);
    }
    if (record?.value.secretUid === secret.uid) return record;
    const what = tokenId === '' ? 'such access token' : `access token "${tokenId}"`;
    throw new CloudlessError('TOKEN_NOT_FOUND', `secret "${toSecretKey(secret)}" has no ${what}`);
  }
}

function describeUses(maxUses: number): string {
  if (maxUses < 0) return 'without a limit of uses';
  return maxUses === 1 ? 'for one use' : `for ${maxUses} uses`;
}

function parseTtl({ ttl, audience }: GenerateAccessTokenRequest): number {
  const ttlMs = ttl === undefined ? DEFAULT_TTL_MS : durationMs(ttl);
  if (ttlMs < MIN_TTL_MS || ttlMs > MAX_TTL_MS)
    throw new InvalidInputError([{ field: 'ttl', message: 'must be from 1 s to 24 h' }]);
  if (mayContainAccessToken(audience)) {
    const message = 'is the text of an access token; name who uses the token';
    throw new InvalidInputError([{ field: 'audience', message }]);
  }
  return ttlMs;
}

/**
 * @throws kind `invalid` when a secret does not permit the audience of a token, and for an audience
 *   that no token may have.
 */
function requirePermitted(secret: SecretRecord, audience: string): void {
  if (isReservedAudience(audience)) {
    const message = `${audience} is the audience of a route, for which no access token can be used; name who uses the token`;
    throw new InvalidInputError([{ field: 'audience', message }]);
  }
  if (allowsAudience(secret, audience)) return;
  const message = `secret "${toSecretKey(secret)}" does not permit the audience ${audience}; the secret permits ${secret.audiences.join(', ')}`;
  throw new InvalidInputError([{ field: 'audience', message }]);
}

/** @throws kind `exhausted` when the cluster has as many live tokens as it keeps. */
function requireRoom(view: ClusterView, nowMs: number): void {
  let live = 0;
  for (const { value } of view.accessTokens()) if (isLive(value, nowMs)) live += 1;
  if (live < MAX_TOKENS) return;
  throw new CloudlessError(
    'exhausted',
    `the cluster has ${MAX_TOKENS} valid access tokens, which is the limit; revoke tokens, or give tokens a shorter ttl`,
  );
}

/** @throws kind `invalid` unless exactly one of `token_id`, `access_token` and `all` is set. */
function checkRevocation({ tokenId, accessToken, all }: RevokeAccessTokenRequest): void {
  const count = [tokenId !== '', accessToken !== '', all].filter(Boolean).length;
  if (count !== 1) {
    const message = 'set exactly one of token_id, access_token and all';
    throw new InvalidInputError([{ field: count === 0 ? 'token_id' : '', message }]);
  }
  if (tokenId === '' || isAccessTokenId(tokenId)) return;
  // The id is not repeated: it may be the text of a token.
  const message =
    'is no id of an access token, which has 12 lower-case letters and digits; pass the text of a token as access_token';
  throw new InvalidInputError([{ field: 'token_id', message }]);
}
