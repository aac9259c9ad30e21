import type { ReplicaFilesVersion } from '@cloudless/api';
import type { IdentityDirectory } from '../container/identity-directory.js';
import type { CredentialReader } from '../workload-identity/workload-identity-files.js';

/** The files of one secret or config of a replica. */
export interface FileSet {
  /** Directory of the files, below the directory of the replica: `secrets/db`. */
  readonly directory: string;
  /** Identifies the content. A set that is in place already is not written again. */
  readonly revision: string;
  /** Contents by the name of the file. */
  readonly files: ReadonlyMap<string, Uint8Array>;
  /** Permission bits of each file. */
  readonly mode: number;
  /** Owner and group of the files. */
  readonly reader: CredentialReader;
}

/** The values of one secret or config of a replica. */
export interface ReplicaValues {
  readonly version: ReplicaFilesVersion;
  /** Values by key. */
  readonly data: ReadonlyMap<string, Uint8Array>;
  /** True when the files have changed and the main process has not got the signal yet. */
  readonly signalPending: boolean;
}

/**
 * Directories on this node with the secrets and configs of each replica, and an encrypted copy of
 * the values, from which a replica restarts while no coordinator answers.
 */
export interface ReplicaFileStore {
  /**
   * Creates the directory of a replica when it is missing.
   * @param sizeBytes - Bound of all files, where the directory is a tmpfs of its own.
   * @param isPrivate - Only the user of this process may enter the directory: for a process.
   */
  open(
    replicaId: string,
    options: { readonly sizeBytes: number; readonly isPrivate: boolean },
  ): Promise<IdentityDirectory>;
  /** Replaces all files of a set at once, also as the container sees them. Call `open` before. */
  write(replicaId: string, set: FileSet): Promise<void>;
  /** Reads the copy; empty when there is none or it is damaged. */
  readCopy(replicaId: string): Promise<readonly ReplicaValues[]>;
  /** Replaces the copy. */
  saveCopy(replicaId: string, values: readonly ReplicaValues[]): Promise<void>;
  /** Removes the copy; has no effect when there is none. */
  removeCopy(replicaId: string): Promise<void>;
  /** Removes the directory and the copy of a replica; has no effect when there are none. */
  remove(replicaId: string): Promise<void>;
  /** Lists the replicas that have a directory or a copy. */
  list(): Promise<readonly string[]>;
}
