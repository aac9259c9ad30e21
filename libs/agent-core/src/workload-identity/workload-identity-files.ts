import type { IdentityDirectory } from '../container/identity-directory.js';

/** Certificate, key and trusted roots of one replica, each in PEM. */
export interface WorkloadCredential {
  /** Certificate, issuing certificate and root. */
  readonly chainPem: string;
  /** The private key. Secret: the key never leaves this node. */
  readonly keyPem: string;
  /** The roots to trust. */
  readonly bundlePem: string;
  /** Time at which this node got the certificate, milliseconds since the Unix epoch. */
  readonly obtainedAtMs: number;
}

/** A stored credential with its validity. Times are milliseconds since the Unix epoch. */
export interface StoredWorkloadCredential extends WorkloadCredential {
  readonly notBeforeMs: number;
  readonly notAfterMs: number;
}

/** Users who may read the files of a replica inside its container. */
export interface CredentialReader {
  /** The only user that may read the files. Absent: every user in the container. */
  readonly userId?: number;
  /** A group that may read the files, too. */
  readonly groupId?: number;
}

/** Directories on this node with the credential of each replica. */
export interface WorkloadIdentityFiles {
  /** Creates the directory of a replica when it is missing. */
  open(replicaId: string): Promise<IdentityDirectory>;
  /** Reads the credential; undefined when there is none or its files are damaged. */
  read(replicaId: string): Promise<StoredWorkloadCredential | undefined>;
  /** Replaces all files at once, also as the container sees them. Call `open` before. */
  write(
    replicaId: string,
    credential: WorkloadCredential,
    reader: CredentialReader,
  ): Promise<StoredWorkloadCredential>;
  /** Removes the directory of a replica; has no effect when there is none. */
  remove(replicaId: string): Promise<void>;
  /** Lists the replicas that have a directory. */
  list(): Promise<readonly string[]>;
}
