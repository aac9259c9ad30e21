import type { SecretRecord } from '@cloudless/api/store';
import { toSecretKeyId, type ClusterView } from '@cloudless/cluster-state';
import { allowsAudience, isExpired } from '../secret/secret-lookup.js';

/** A use of a secret by a workload or route of its namespace. */
export interface SecretUse {
  readonly namespace: string;
  readonly name: string;
  /** Audience that the secret must permit: `workload/default.web`. */
  readonly audience: string;
}

/** Why a secret may not be used. */
export interface SecretProblem {
  readonly reason: 'SecretNotFound' | 'SecretExpired' | 'AudienceNotPermitted';
  /** What is wrong and what to do, for people. */
  readonly message: string;
}

/** Returns why a secret may not be used now; undefined for a permitted use. */
export function findSecretProblem(
  view: ClusterView,
  { namespace, name, audience }: SecretUse,
  nowMs: number,
): SecretProblem | undefined {
  const key = toSecretKeyId(namespace, name);
  const secret = view.secret(key)?.value;
  if (secret === undefined) {
    const message = `secret "${key}" not found; create the secret first`;
    return { reason: 'SecretNotFound', message };
  }
  if (isExpired(secret, nowMs)) {
    const message = `secret "${key}" has expired; update the secret first`;
    return { reason: 'SecretExpired', message };
  }
  const message = findAudienceProblem(secret, audience);
  return message === undefined ? undefined : { reason: 'AudienceNotPermitted', message };
}

/** Returns why a secret does not permit an audience, and what to do; undefined when it does. */
export function findAudienceProblem(
  secret: Pick<SecretRecord, 'namespace' | 'name' | 'audiences'>,
  audience: string,
): string | undefined {
  if (allowsAudience(secret, audience)) return undefined;
  return `secret "${secret.namespace}/${secret.name}" does not allow the audience ${audience}; add the audience ${audience} to the secret`;
}
