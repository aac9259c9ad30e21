import type {
  CredentialReader,
  StoredWorkloadCredential,
  WorkloadCredential,
  WorkloadIdentityFiles,
} from '../workload-identity/workload-identity-files.js';
import type { IdentityDirectory } from '../container/identity-directory.js';

/** Files of identities in memory. A chain in these files has the form `NAME NOT_BEFORE NOT_AFTER`. */
export class MemoryWorkloadIdentityFiles implements WorkloadIdentityFiles {
  /** Credentials by replica id; undefined for a directory without files. */
  readonly contents = new Map<string, StoredWorkloadCredential | undefined>();
  readonly readers = new Map<string, CredentialReader>();

  async open(replicaId: string): Promise<IdentityDirectory> {
    if (!this.contents.has(replicaId)) this.contents.set(replicaId, undefined);
    return { path: `/identities/${replicaId}`, inMemory: true };
  }

  async read(replicaId: string): Promise<StoredWorkloadCredential | undefined> {
    return this.contents.get(replicaId);
  }

  async write(
    replicaId: string,
    credential: WorkloadCredential,
    reader: CredentialReader,
  ): Promise<StoredWorkloadCredential> {
    if (!this.contents.has(replicaId)) throw new Error(`${replicaId} is not open`);
    const [, notBefore, notAfter] = credential.chainPem.split(' ');
    const stored = {
      ...credential,
      notBeforeMs: Number(notBefore),
      notAfterMs: Number(notAfter),
    };
    this.contents.set(replicaId, stored);
    this.readers.set(replicaId, reader);
    return stored;
  }

  async remove(replicaId: string): Promise<void> {
    this.contents.delete(replicaId);
  }

  async list(): Promise<readonly string[]> {
    return [...this.contents.keys()];
  }
}
