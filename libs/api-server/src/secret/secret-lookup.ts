import { create } from '@bufbuild/protobuf';
import { timestampMs } from '@bufbuild/protobuf/wkt';
import { SecretSchema, resolveNamespace, type Secret } from '@cloudless/api';
import type { SecretRecord } from '@cloudless/api/store';
import { CloudlessError, definedFields } from '@cloudless/base';
import { toSecretKeyId, type ClusterView, type Stored } from '@cloudless/cluster-state';
import type { UsedObject } from '../files/workload-uses.js';
import { checkGeneration } from '../generation.js';

/** The name of a secret in a request. An empty namespace means `default`. */
export interface SecretName {
  readonly namespace: string;
  readonly name: string;
}

/** Returns the key of the secret that a request names. */
export function toSecretKey(request: SecretName): string {
  return toSecretKeyId(resolveNamespace(request), request.name);
}

/**
 * Returns `<namespace>/<name>` of the secret that a request names, for messages. A name that no secret
 * can have is not repeated: it may be the text of a token that was sent in the wrong field.
 */
export function describeName(request: SecretName): string {
  return isPossibleName(request) ? toSecretKey(request) : '(invalid name)';
}

/** Returns false for a name that no secret can have. */
export function isPossibleName(request: SecretName): boolean {
  return /^[a-z0-9.-]+\/[a-z0-9.-]+$/.test(toSecretKey(request));
}

/**
 * Returns the secret that a request names.
 * @throws reason `SECRET_NOT_FOUND`.
 */
export function requireSecret(view: ClusterView, request: SecretName): Stored<SecretRecord> {
  const secret = view.secret(toSecretKey(request));
  if (secret !== undefined) return secret;
  throw new CloudlessError('SECRET_NOT_FOUND', `secret "${describeName(request)}" not found`);
}

/**
 * Returns the secret that a request changes.
 * @throws the errors of {@link requireSecret}; kind `conflict` when its generation is not the expected
 *   one.
 */
export function requireExpectedSecret(
  view: ClusterView,
  request: SecretName & { readonly expectedGeneration?: bigint | undefined },
): Stored<SecretRecord> {
  const secret = requireSecret(view, request);
  const { generation } = secret.value;
  const name = toSecretKey(request);
  checkGeneration({ kind: 'secret', name, generation }, request.expectedGeneration);
  return secret;
}

/** Names a secret for the functions about uses by workloads. */
export function toUsedObject({
  namespace,
  name,
}: Pick<SecretRecord, 'namespace' | 'name'>): UsedObject {
  return { kind: 'secrets', namespace, name };
}

/** Returns true when the values of a secret are no longer given out. */
export function isExpired({ expiresAt }: SecretRecord, nowMs: number): boolean {
  return expiresAt !== undefined && timestampMs(expiresAt) <= nowMs;
}

/** Throws reason `SECRET_EXPIRED` when the values of a secret are no longer given out. */
export function requireUnexpired(record: SecretRecord, nowMs: number): void {
  if (!isExpired(record, nowMs)) return;
  throw new CloudlessError(
    'SECRET_EXPIRED',
    `secret "${toSecretKey(record)}" has expired; update it with new values and a later expires_at`,
  );
}

/** Returns true when a secret allows an audience. */
export function allowsAudience(
  { audiences }: { readonly audiences: readonly string[] },
  audience: string,
): boolean {
  return audiences.some((allowed) =>
    allowed.endsWith('*') ? audience.startsWith(allowed.slice(0, -1)) : audience === allowed,
  );
}

/** Builds the API message of a secret from its record. */
export function presentSecret(record: SecretRecord): Secret {
  const { namespace, name, uid, labels, audiences, immutable, generation, version } = record;
  const { expiresAt, createdAt, updatedAt } = record;
  return create(SecretSchema, {
    ...{ namespace, name, uid, labels, audiences, immutable, generation, version },
    versions: record.versions,
    ...definedFields({ expiresAt, createdAt, updatedAt }),
  });
}

/** As {@link presentSecret}, with the newest version only: for lists and stored responses. */
export function presentNewest(record: SecretRecord): Secret {
  const secret = presentSecret(record);
  secret.versions = record.versions.slice(-1);
  return secret;
}
