import type { WorkloadSpec } from '@cloudless/api';
import type { ImageCredentials } from '@cloudless/runtime';
import type { IdentityDirectory } from '../container/identity-directory.js';
import {
  hasFiles,
  toDirectoryVariables,
  toRefDirectory,
  toVariables,
  type FileRef,
} from './file-refs.js';

/** Prefix of reasons in reports about secrets and configs. */
export const FILES_REASON = 'secrets: ';

/** Variables, mounts and credentials for the containers of a replica. */
export interface FilesAccess {
  /** Directory of the replica; undefined when all values are environment variables. */
  readonly directory: IdentityDirectory | undefined;
  /** References with files, each with its directory on this node. */
  readonly mounts: readonly { readonly ref: FileRef; readonly path: string }[];
  /** Variables with the directories of the files. */
  readonly env: Readonly<Record<string, string>>;
  /** Variables with values. */
  readonly secretEnv: Readonly<Record<string, string>>;
  /** Credentials for the image of the next start. */
  readonly imageCredentials?: ImageCredentials;
}

/**
 * Returns what the containers of a replica get, without credentials.
 * @param readData - Returns the values of a reference.
 * @throws kind `precondition` when a value cannot be an environment variable.
 */
export function toFilesAccess(
  { image }: Pick<WorkloadSpec, 'image'>,
  refs: readonly FileRef[],
  directory: IdentityDirectory | undefined,
  readData: (ref: FileRef) => ReadonlyMap<string, Uint8Array>,
): FilesAccess {
  const isProcess = image === '';
  const secretEnv: Record<string, string> = {};
  for (const ref of refs) Object.assign(secretEnv, toVariables(ref, readData(ref)));
  const mounted = directory === undefined || isProcess ? [] : refs.filter(hasFiles);
  return {
    directory,
    mounts: mounted.map((ref) => ({ ref, path: `${directory?.path}/${toRefDirectory(ref)}` })),
    env: toDirectoryVariables(refs, isProcess ? directory?.path : undefined),
    secretEnv,
  };
}
