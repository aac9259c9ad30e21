import type { FileSet, ReplicaFileStore, ReplicaValues } from '../files/replica-file-store.js';
import type { IdentityDirectory } from '../container/identity-directory.js';

/** Secrets and configs of replicas in memory. */
export class MemoryReplicaFiles implements ReplicaFileStore {
  /** Sets by `<replica>/<directory>`. */
  readonly sets = new Map<string, FileSet>();
  readonly copies = new Map<string, readonly ReplicaValues[]>();
  readonly directories = new Set<string>();
  /** Number of written sets. */
  writes = 0;
  /** While set, writes fail with this error. */
  failure: Error | undefined;

  async open(replicaId: string): Promise<IdentityDirectory> {
    this.directories.add(replicaId);
    return { path: `/files/${replicaId}`, inMemory: true };
  }

  async write(replicaId: string, set: FileSet): Promise<void> {
    if (this.failure !== undefined) throw this.failure;
    const path = `${replicaId}/${set.directory}`;
    if (this.sets.get(path)?.revision === set.revision) return;
    this.sets.set(path, set);
    this.writes += 1;
  }

  /** Returns the text of a file; undefined when there is none. */
  readFile(replicaId: string, directory: string, name: string): string | undefined {
    const content = this.sets.get(`${replicaId}/${directory}`)?.files.get(name);
    return content === undefined ? undefined : new TextDecoder().decode(content);
  }

  async readCopy(replicaId: string): Promise<readonly ReplicaValues[]> {
    return this.copies.get(replicaId) ?? [];
  }

  async saveCopy(replicaId: string, values: readonly ReplicaValues[]): Promise<void> {
    this.copies.set(replicaId, values);
  }

  async removeCopy(replicaId: string): Promise<void> {
    this.copies.delete(replicaId);
  }

  async remove(replicaId: string): Promise<void> {
    this.copies.delete(replicaId);
    this.directories.delete(replicaId);
    for (const path of this.sets.keys())
      if (path.startsWith(`${replicaId}/`)) this.sets.delete(path);
  }

  async list(): Promise<readonly string[]> {
    return [...new Set([...this.directories, ...this.copies.keys()])];
  }
}
