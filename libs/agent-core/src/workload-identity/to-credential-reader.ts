import type { WorkloadSpec } from '@cloudless/api';
import type { CredentialReader } from './workload-identity-files.js';

/**
 * Returns who may read the files of a replica. Only the numeric user of the spec is known before
 * the start; the user of an image, or one given by name, is not.
 */
export function toCredentialReader({ security }: Pick<WorkloadSpec, 'security'>): CredentialReader {
  const { runAsUser, fsGroup } = security ?? {};
  if (runAsUser === undefined) return {};
  return {
    userId: Number(runAsUser),
    ...(fsGroup === undefined ? {} : { groupId: Number(fsGroup) }),
  };
}
