import { clone, create, equals } from '@bufbuild/protobuf';
import { timestampFromMs } from '@bufbuild/protobuf/wkt';
import {
  DeleteSecretResponseSchema,
  Event_Category as Category,
  Event_Severity as Severity,
  SecretsService,
  resolveNamespace,
  type CreateSecretRequest,
  type DeleteSecretRequest,
  type DeleteSecretResponse,
  type Secret,
  type UpdateSecretRequest,
} from '@cloudless/api';
import { SecretRecordSchema, type SecretRecord } from '@cloudless/api/store';
import {
  CloudlessError,
  InvalidInputError,
  definedFields,
  errorMessageOf,
  randomHex,
} from '@cloudless/base';
import {
  putFilesGuard,
  type ClusterView,
  type EventInit,
  type Stored,
  type Transaction,
} from '@cloudless/cluster-state';
import { encodeValues, requireCertificatePair, type SecretData } from '@cloudless/secrets';
import type { AuditEntry } from '../audit/audit-log.js';
import {
  findLastUsedNumber,
  listRouteUses,
  listUses,
  nameUsers,
  requireUnused,
  toFilesGuardName,
} from '../files/workload-uses.js';
import {
  runIdempotent,
  type MutationDeps,
  type MutationResult,
} from '../mutation/idempotent-mutation.js';
import { listLiveTokens } from './access-token.js';
import {
  checkAudiences,
  checkData,
  parseExpiry,
  parseMask,
  toSecretData,
  type SecretField,
} from './secret-input.js';
import type { SecretKeyRing, SecretKeys } from './secret-keys.js';
import {
  presentSecret,
  requireExpectedSecret,
  requireSecret,
  toSecretKey,
  toUsedObject,
} from './secret-lookup.js';
import type { StoredSecretValues } from './secret-values.js';
import { deleteVersions, putVersion } from './secret-versions.js';
import {
  MAX_TOKENS_PER_COMMIT,
  listTokensToDelete,
  putRevocations,
  putTokenDeletions,
} from './token-revocation.js';

const calls = SecretsService.method;

/** Random bytes of the uid of a secret. */
const UID_BYTES = 8;

export interface SecretHandlersDeps extends MutationDeps {
  readonly keys: SecretKeys;
  readonly values: StoredSecretValues;
}

/** Handlers of the calls of SecretsService that change secrets. */
export class SecretHandlers {
  constructor(private readonly deps: SecretHandlersDeps) {}

  async createSecret(request: CreateSecretRequest, entry: AuditEntry): Promise<Secret> {
    const { name, requestId, audiences, labels, immutable } = request;
    const { clock, random, state } = this.deps;
    const namespace = resolveNamespace(request);
    const data = toSecretData(request.data);
    checkData(data);
    checkAudiences(audiences);
    const call = toCall(request, entry, await this.openKeys());
    return runIdempotent(this.deps, calls.createSecret, call, async () => {
      const ring = await this.reopenKeys();
      const view = state.view();
      const key = toSecretKey(request);
      if (view.secret(key) !== undefined) {
        const message = `secret "${key}" already exists; update it, or choose another name`;
        throw new CloudlessError('exists', message);
      }
      const now = clock.wallTime();
      const createdAt = timestampFromMs(now);
      const record = create(SecretRecordSchema, {
        ...{ namespace, name, audiences, labels, immutable, createdAt, updatedAt: createdAt },
        generation: 1n,
        uid: randomHex(random, UID_BYTES),
        version: findLastUsedNumber(view, toUsedObject({ namespace, name })),
        ...definedFields({ expiresAt: parseExpiry(request, now) }),
      });
      const transaction = state.transaction();
      putVersion({ view, ring, random }, transaction, record, { data, createdAt });
      transaction
        .require('secret', key, 'absent')
        .put('secret', key, record)
        .event(createSecretEvent(record, requestId, 'SecretCreated', 'was created'));
      return { response: presentSecret(record), transaction };
    });
  }

  async updateSecret(request: UpdateSecretRequest, entry: AuditEntry): Promise<Secret> {
    const fields = parseMask(request.updateMask?.paths, listPresent(request));
    if (fields.has('audiences')) checkAudiences(request.audiences);
    const call = toCall(request, entry, await this.openKeys());
    return runIdempotent(this.deps, calls.updateSecret, call, async () => {
      for (;;) {
        const decided = await this.decideUpdate(request, fields, await this.reopenKeys());
        if (!('revokeFirst' in decided)) return decided;
        await entry.commit(decided.revokeFirst);
      }
    });
  }

  /**
   * Decides an update.
   * @returns `revokeFirst`: there are more tokens than one transaction revokes. Commit this transaction
   *   first, then decide again.
   */
  private async decideUpdate(
    request: UpdateSecretRequest,
    fields: ReadonlySet<SecretField>,
    ring: SecretKeyRing,
  ): Promise<MutationResult<Secret> | { readonly revokeFirst: Transaction }> {
    const { state, clock, random } = this.deps;
    const view = state.view();
    const current = requireExpectedSecret(view, request);
    const data = fields.has('data') ? await this.toNewData(view, current, request) : undefined;
    if (data !== undefined) requirePairForRoutes(view, current.value, data);
    const now = clock.wallTime();
    const next = updateRecord(current.value, request, fields, now);
    const present = (record: SecretRecord): Secret => {
      const object = toUsedObject(record);
      const usedBy = listUses(view, object, current.value.version);
      return Object.assign(presentSecret(record), {
        usedBy,
        usedByRoutes: listRouteUses(view, object),
      });
    };
    const tokens = request.revokeExistingTokens ? listLiveTokens(view, next, now) : [];
    const batch = tokens.slice(0, MAX_TOKENS_PER_COMMIT);
    if (data === undefined && equals(SecretRecordSchema, current.value, next)) {
      if (batch.length === 0 || request.dryRun) return { response: present(next) };
      const revocation = putRevocations(state.transaction(), next, batch, now);
      if (batch.length < tokens.length) return { revokeFirst: revocation };
      return { response: present(next), transaction: revocation };
    }
    const transaction = putFilesGuard(view, state.transaction(), next.namespace);
    next.generation += 1n;
    next.updatedAt = timestampFromMs(now);
    if (data !== undefined)
      putVersion({ view, ring, random }, transaction, next, { data, createdAt: next.updatedAt });
    if (request.dryRun) return { response: present(next) };
    if (batch.length < tokens.length)
      return { revokeFirst: putRevocations(state.transaction(), next, batch, now) };
    const text =
      data === undefined
        ? `has new settings (generation ${next.generation})`
        : `has new values (version ${next.version})`;
    const key = toSecretKey(request);
    transaction
      .require('secret', key, current)
      .put('secret', key, next)
      .event(createSecretEvent(next, request.requestId, 'SecretUpdated', text));
    return { response: present(next), transaction: putRevocations(transaction, next, batch, now) };
  }

  /**
   * Deletes a secret with its versions and access tokens. A repeated call with another request id
   * fails with NOT_FOUND.
   * @throws reason `STILL_USED` while workloads or routes use the secret, and while access tokens are valid
   *   unless the request revokes them.
   */
  async deleteSecret(
    request: DeleteSecretRequest,
    entry: AuditEntry,
  ): Promise<DeleteSecretResponse> {
    const ring = await this.openKeys();
    const { state, clock } = this.deps;
    return runIdempotent(this.deps, calls.deleteSecret, toCall(request, entry, ring), async () => {
      for (;;) {
        const view = state.view();
        const current = requireSecret(view, request);
        const { value } = current;
        requireUnused(view, toUsedObject(value));
        const options = { revoke: request.revokeTokens, nowMs: clock.wallTime() };
        const tokens = listTokensToDelete(view, value, options);
        if (tokens.length > MAX_TOKENS_PER_COMMIT) {
          const first = tokens.slice(0, MAX_TOKENS_PER_COMMIT);
          await entry.commit(putTokenDeletions(state.transaction(), first));
          continue;
        }
        const key = toSecretKey(request);
        const transaction = putFilesGuard(view, state.transaction(), value.namespace);
        deleteVersions(transaction, value);
        putTokenDeletions(transaction, tokens)
          .require('secret', key, current)
          .delete('secret', key)
          .event(createSecretEvent(value, request.requestId, 'SecretDeleted', 'was deleted'));
        return { response: create(DeleteSecretResponseSchema), transaction };
      }
    });
  }

  private openKeys(): Promise<SecretKeyRing> {
    return this.deps.mutex.run('the master keys', () => this.deps.keys.openOrCreate(this.deps));
  }

  /** Opens the keys for one attempt: a rotation may have changed the active key since the last. */
  private reopenKeys(): Promise<SecretKeyRing> {
    return this.deps.keys.require(this.deps.state.view());
  }

  /**
   * Returns the values that an update asks for; undefined when they are those of the newest version.
   * @throws kind `invalid`; reason `SECRET_IMMUTABLE`.
   */
  private async toNewData(
    view: ClusterView,
    { value }: Stored<SecretRecord>,
    request: UpdateSecretRequest,
  ): Promise<SecretData | undefined> {
    const given = toSecretData(request.data);
    checkData(given);
    const before = await this.deps.values.readData(view, value, value.version);
    const after = request.keepOtherKeys ? new Map([...before, ...given]) : given;
    checkData(after);
    if (Buffer.compare(encodeValues(before), encodeValues(after)) === 0) return undefined;
    if (!value.immutable) return after;
    throw new CloudlessError(
      'SECRET_IMMUTABLE',
      `secret "${toSecretKey(value)}" is immutable; create a secret with another name, or delete it first`,
    );
  }
}

/** Changes of a secret run one at a time. A stored request has no values. */
function toCall<Request extends { readonly namespace: string; readonly name: string }>(
  request: Request,
  entry: AuditEntry,
  { mac }: SecretKeyRing,
) {
  const subject = `secret "${toSecretKey(request)}"`;
  return { request, entry, subject, sharedWith: toFilesGuardName(request), bodyHashKey: mac };
}

function listPresent(request: UpdateSecretRequest): Readonly<Record<SecretField, boolean>> {
  return {
    data: Object.keys(request.data).length > 0,
    audiences: request.audiences.length > 0,
    expires_at: request.expiresAt !== undefined || request.ttl !== undefined,
    immutable: request.immutable,
    labels: Object.keys(request.labels).length > 0,
  };
}

/** Returns the record with the changed fields, apart from the values. */
function updateRecord(
  before: SecretRecord,
  request: UpdateSecretRequest,
  fields: ReadonlySet<SecretField>,
  nowMs: number,
): SecretRecord {
  const next = clone(SecretRecordSchema, before);
  if (fields.has('audiences')) next.audiences = request.audiences;
  if (fields.has('immutable')) {
    if (before.immutable && !request.immutable)
      throw new CloudlessError(
        'SECRET_IMMUTABLE',
        `secret "${toSecretKey(before)}" is immutable and stays so; create a secret with another name`,
      );
    next.immutable = request.immutable;
  }
  if (fields.has('expires_at')) {
    const expiresAt = parseExpiry(request, nowMs);
    if (expiresAt === undefined) delete next.expiresAt;
    else next.expiresAt = expiresAt;
  }
  if (fields.has('labels')) next.labels = { ...request.labels };
  return next;
}

/**
 * Checks the new values of a secret that routes use: they must be a certificate with its key.
 * @throws kind `invalid`, naming up to five routes.
 */
function requirePairForRoutes(view: ClusterView, record: SecretRecord, data: SecretData): void {
  const routes = listRouteUses(view, toUsedObject(record));
  if (routes.length === 0) return;
  try {
    requireCertificatePair(data, `secret "${toSecretKey(record)}"`);
  } catch (reason) {
    const message = `${errorMessageOf(reason)}; ${nameUsers('route', routes)} of the namespace would have no certificate`;
    throw new InvalidInputError([{ field: 'data', message }]);
  }
}

function createSecretEvent(
  { namespace, name }: SecretRecord,
  requestId: string,
  reason: string,
  text: string,
): EventInit {
  return {
    ...{ severity: Severity.INFO, category: Category.SECURITY, namespace, requestId, reason },
    message: `secret ${toSecretKey({ namespace, name })} ${text}`,
  };
}
