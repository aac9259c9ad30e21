import type { ImageCredentials } from '@cloudless/runtime';
import type { IdentityDirectory } from '../container/identity-directory.js';
import type { FileRef } from './file-refs.js';

/** Prefix of reasons in reports about secrets and configs. */
export const FILES_REASON = 'secrets: ';

/** What the containers of a replica get. */
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
