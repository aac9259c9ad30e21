import { CloudlessError, definedFields, errorKindOf, errorReasonOf } from '@cloudless/base';
import {
  ReplicaFilesVersion_Kind as FilesKind,
  type GetReplicaFilesResponse,
  type ReplicaFilesVersion,
} from '@cloudless/api';
import { toRefId, type FileRef } from './file-refs.js';
import type { ReplicaValues } from './replica-file-store.js';

/** Returns true when the coordinator has decided that this node may not have the values. */
export function isRefusal(reason: unknown): boolean {
  return ['denied', 'notFound'].includes(errorKindOf(reason));
}

/** Returns true when the values of the local copy may be used instead. */
export function isTemporary(reason: unknown): boolean {
  if ((errorReasonOf(reason) as string) === 'NO_SECRETS_KEY') return true;
  return ['unavailable', 'deadline', 'exhausted', 'conflict', 'internal'].includes(
    errorKindOf(reason),
  );
}

/** Returns true for the same version of the same object. */
export function isSame(one: ReplicaFilesVersion, other: ReplicaFilesVersion): boolean {
  return one.uid === other.uid && one.version === other.version;
}

/** Returns true when there are values for all references. */
export function isComplete(
  refs: readonly FileRef[],
  values: ReadonlyMap<string, ReplicaValues>,
): boolean {
  return refs.every((ref) => values.has(toRefId(ref)));
}

/** @throws kind `unavailable` when there are no values for a reference. */
export function requireValues(
  values: ReadonlyMap<string, ReplicaValues>,
  ref: FileRef,
): ReplicaValues {
  const found = values.get(toRefId(ref));
  if (found === undefined) throw createMissingError(toRefId(ref));
  return found;
}

/** Creates the error for values that the coordinator did not send. */
export function createMissingError(id: string): CloudlessError {
  return new CloudlessError('unavailable', `the coordinator sent no values of ${id}`);
}

/**
 * Returns the values of responses, together with those that were known already.
 * @returns `pull` is the secret with the credentials for the image, which is not part of `values`.
 * @throws kind `unavailable` when there are no values for a reference.
 */
export function mergeValues(
  refs: readonly FileRef[],
  known: ReadonlyMap<string, ReplicaValues>,
  responses: readonly GetReplicaFilesResponse[],
): {
  readonly values: ReadonlyMap<string, ReplicaValues>;
  readonly pull?: ReadonlyMap<string, Uint8Array>;
} {
  const values = new Map<string, ReplicaValues>();
  let pull: ReadonlyMap<string, Uint8Array> | undefined;
  for (const { version, unchanged, data } of responses) {
    if (version === undefined) continue;
    const id = toRefId(version);
    const received = new Map(Object.entries(data));
    const before = known.get(id);
    if (version.kind === FilesKind.IMAGE_PULL_SECRET) pull = received;
    else if (!unchanged) values.set(id, { version, data: received, signalPending: false });
    else if (before !== undefined && isSame(before.version, version)) values.set(id, before);
  }
  for (const ref of refs) if (!values.has(toRefId(ref))) throw createMissingError(toRefId(ref));
  return { values, ...definedFields({ pull }) };
}
