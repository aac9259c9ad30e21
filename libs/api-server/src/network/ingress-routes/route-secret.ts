import type { RouteSpec } from '@cloudless/api';
import type { RouteRecord, SecretRecord } from '@cloudless/api/store';
import { CloudlessError, assert, errorKindOf, errorMessageOf } from '@cloudless/base';
import { toSecretKeyId, type ClusterView } from '@cloudless/cluster-state';
import {
  CERTIFICATE_ENTRY,
  PRIVATE_KEY_ENTRY,
  requireCertificatePair,
  type CertificatePair,
} from '@cloudless/secrets';
import { createMissingError } from '../../files/file-refs.js';
import { findSecretProblem, type SecretProblem } from '../../files/secret-use.js';
import { toSecretKey } from '../../secret/secret-lookup.js';
import type { StoredSecretValues } from '../../secret/secret-values.js';

/** The field of a route that names a secret. */
const FIELD = 'spec.tls.certificate_secret';

/** Versions of a secret that a call reads at most, when the secret changes meanwhile. */
export const MAX_READS = 8;

/** Why a route cannot serve the certificate of its secret. */
export interface RouteSecretProblem {
  readonly reason: SecretProblem['reason'] | 'KeyMissing';
  /** What is wrong and what to do, for people. */
  readonly message: string;
}

/** Returns the name of the secret with the certificate of a route; empty without one. */
export function getSecretName({ tls }: Pick<RouteSpec, 'tls'>): string {
  return tls?.certificateSecret ?? '';
}

/** Returns the audience that a secret must permit for a route. */
export function toRouteAudience({
  namespace,
  name,
}: Pick<RouteRecord, 'namespace' | 'name'>): string {
  return `route/${namespace}.${name}`;
}

/**
 * Returns why a route cannot serve the certificate of its secret, by the records alone: whether the
 * key belongs to the certificate is known when the values are read. Undefined without a problem, and
 * for a route that names no secret.
 */
export function findRouteSecretProblem(
  view: ClusterView,
  { namespace, name, spec }: RouteRecord,
  nowMs: number,
): RouteSecretProblem | undefined {
  const secretName = spec === undefined ? '' : getSecretName(spec);
  if (secretName === '') return undefined;
  const audience = toRouteAudience({ namespace, name });
  const problem = findSecretProblem(view, { namespace, name: secretName, audience }, nowMs);
  if (problem !== undefined) return problem;
  const key = toSecretKeyId(namespace, secretName);
  const keys = Object.keys(view.secret(key)?.value.versions.at(-1)?.sizes ?? {}).sort();
  if (keys.includes(CERTIFICATE_ENTRY) && keys.includes(PRIVATE_KEY_ENTRY)) return undefined;
  const message = `secret "${key}" needs the keys ${CERTIFICATE_ENTRY} and ${PRIVATE_KEY_ENTRY} for a route; its keys are ${keys.join(', ')}`;
  return { reason: 'KeyMissing', message };
}

/** Returns the secret that a route names; undefined when there is none. */
export function findRouteSecret(
  view: ClusterView,
  { namespace, spec }: RouteRecord,
): SecretRecord | undefined {
  const name = spec === undefined ? '' : getSecretName(spec);
  return view.secret(toSecretKeyId(namespace, name))?.value;
}

/**
 * Returns the secret of a route that names one.
 * @throws reason MISSING_REFERENCE with the path of the field, unless the secret may be used.
 */
export function requireRouteSecret(
  view: ClusterView,
  route: RouteRecord,
  nowMs: number,
): SecretRecord {
  const problem = findRouteSecretProblem(view, route, nowMs);
  if (problem !== undefined) throw createMissingError(FIELD, problem.message);
  const secret = findRouteSecret(view, route);
  assert(secret !== undefined, 'a route without a secret has no secret to check');
  return secret;
}

/** Returns true when both are the same version of the same secret. */
export function isSameVersion(
  left: Pick<SecretRecord, 'uid' | 'version'>,
  right: Pick<SecretRecord, 'uid' | 'version'> | undefined,
): boolean {
  return left.uid === right?.uid && left.version === right.version;
}

/** What {@link readCertificatePair} reads from. */
export interface RouteSecretReads {
  readonly state: { readonly view: () => ClusterView };
  readonly values: Pick<StoredSecretValues, 'readData'>;
}

/**
 * Reads the certificate in the newest version of a secret.
 * @returns Undefined when the secret has changed since `secret` was read: begin again.
 * @throws reason MISSING_REFERENCE when the values are no certificate with its key; reason
 *   `NO_SECRETS_KEY`.
 */
export async function readCertificatePair(
  { state, values }: RouteSecretReads,
  secret: SecretRecord,
): Promise<CertificatePair | undefined> {
  const key = toSecretKey(secret);
  const isCurrent = (): boolean => isSameVersion(secret, state.view().secret(key)?.value);
  try {
    const data = await values.readData(state.view(), secret, secret.version);
    return isCurrent() ? requireCertificatePair(data, `secret "${key}"`) : undefined;
  } catch (reason) {
    // The values of a secret that was deleted are missing.
    if (!isCurrent()) return undefined;
    if (errorKindOf(reason) !== 'invalid') throw reason;
    throw createMissingError(FIELD, errorMessageOf(reason));
  }
}

/** Creates the error of a call during which a secret changed {@link MAX_READS} times. */
export function createBusyError(): CloudlessError {
  return new CloudlessError(
    'unavailable',
    'the secret with the certificate of the route was changed again and again while it was read; try again later',
  );
}
