import { createHash } from 'node:crypto';
import { chmod, mkdir, readdir, rm, rmdir } from 'node:fs/promises';
import { join } from 'node:path';
import { CloudlessError, errorFields, type Log } from '@cloudless/base';
import type {
  FileSet,
  IdentityDirectory,
  ReplicaFileStore,
  ReplicaValues,
} from '@cloudless/agent-core';
import { makeDirectory } from '@cloudless/app-kit';
import { LocalCopies } from './local-copies.js';
import { ignoreCode, readRevision, replaceFiles, setOwnership } from './versioned-directory.js';

/** Mounts file systems in memory. */
export interface ReplicaMounts {
  /** Mounts a tmpfs on a directory, unless one is mounted there. */
  mount(directory: string, sizeBytes: number): Promise<void>;
  /** Unmounts every tmpfs on a directory and below. */
  unmount(directory: string): Promise<void>;
}

/** Format of replica ids, which are safe as a file name. */
const REPLICA_ID = /^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$/;
/** Format of the directory of a set: `secrets/db`. */
const SET_DIRECTORY = /^(secrets|configs)\/[a-z0-9]([a-z0-9.-]*[a-z0-9])?$/;
/** Length of the text that identifies the content of a folder. */
const REVISION_LENGTH = 16;

/**
 * Stores the secrets and configs of each replica in a directory of its own, in memory where
 * possible. Only the user of the agent can enter the folder with the directories; a container sees
 * only the directories that are mounted in the container.
 */
export class FileReplicaFiles implements ReplicaFileStore {
  private readonly copies: LocalCopies;
  private hasWarned = false;

  /**
   * @param folder - Folder with the directories.
   * @param mounts - Undefined: nothing is mounted, because the folder is in memory or this process
   *   may not mount.
   * @param prepareFolder - Creates the folder when it is missing.
   */
  constructor(
    private readonly folder: string,
    dataDir: string,
    private readonly mounts: ReplicaMounts | undefined,
    private readonly log: Log,
    private readonly prepareFolder: () => Promise<unknown> = () => makeDirectory(folder, 0o700),
  ) {
    this.copies = new LocalCopies(dataDir, log);
  }

  async open(
    replicaId: string,
    { sizeBytes, isPrivate }: { readonly sizeBytes: number; readonly isPrivate: boolean },
  ): Promise<IdentityDirectory> {
    const path = this.toPath(replicaId);
    await this.prepareFolder();
    await mkdir(path, { mode: 0o700 }).catch(ignoreCode('EEXIST'));
    const inMemory = await this.mount(path, sizeBytes);
    for (const name of ['secrets', 'configs'])
      await mkdir(join(path, name)).catch(ignoreCode('EEXIST'));
    // The umask may have cleared bits; a new tmpfs has the mode of its mount options.
    for (const each of [path, join(path, 'secrets'), join(path, 'configs')])
      await chmod(each, isPrivate ? 0o700 : 0o755);
    return { path, inMemory };
  }

  async write(replicaId: string, set: FileSet): Promise<void> {
    const { directory, files, mode, reader } = set;
    if (!SET_DIRECTORY.test(directory))
      throw new CloudlessError(
        'invalid',
        `${JSON.stringify(directory)} is not a directory of files`,
      );
    const path = join(this.toPath(replicaId), directory);
    const revision = createHash('sha256')
      .update(`${set.revision} ${mode.toString(8)} ${[...files.keys()].join(' ')}`)
      .digest('hex')
      .slice(0, REVISION_LENGTH);
    if ((await readRevision(path)) === revision) return;
    await mkdir(path).catch(ignoreCode('EEXIST'));
    await chmod(path, 0o755);
    const { userId, groupId = 0 } = reader;
    const owner = userId === undefined ? undefined : { userId, groupId };
    await replaceFiles(
      path,
      [...files].map(([name, content]) => ({ name, content })),
      {
        permit: (file, kind) => setOwnership(file, kind === 'file' ? mode : 0o755, owner),
        what: `the files of ${directory}`,
        revision,
      },
    );
  }

  readCopy(replicaId: string): Promise<readonly ReplicaValues[]> {
    return this.copies.read(this.requireId(replicaId));
  }

  saveCopy(replicaId: string, values: readonly ReplicaValues[]): Promise<void> {
    return this.copies.save(this.requireId(replicaId), values);
  }

  removeCopy(replicaId: string): Promise<void> {
    return this.copies.remove(this.requireId(replicaId));
  }

  async remove(replicaId: string): Promise<void> {
    const path = this.toPath(replicaId);
    await this.copies.remove(replicaId);
    await this.mounts?.unmount(path);
    await rm(path, { recursive: true, force: true });
    await rmdir(this.folder).catch(() => undefined); // fails while other replicas have files
  }

  async list(): Promise<readonly string[]> {
    const names = await readdir(this.folder).catch(ignoreCode('ENOENT'));
    const all = new Set([...(names ?? []), ...(await this.copies.list())]);
    return [...all].filter((name) => REPLICA_ID.test(name));
  }

  /** Removes every directory and copy, for example when the agent leaves its cluster. */
  async removeAll(): Promise<void> {
    for (const replicaId of await this.list()) await this.remove(replicaId);
    await rm(this.folder, { recursive: true, force: true });
  }

  private toPath(replicaId: string): string {
    return join(this.folder, this.requireId(replicaId));
  }

  private requireId(replicaId: string): string {
    if (REPLICA_ID.test(replicaId)) return replicaId;
    throw new CloudlessError('invalid', `${JSON.stringify(replicaId)} is not an id of a replica`);
  }

  /** Returns true when a tmpfs is mounted at the directory. */
  private async mount(path: string, sizeBytes: number): Promise<boolean> {
    if (this.mounts === undefined) return false;
    try {
      await this.mounts.mount(path, sizeBytes);
      return true;
    } catch (reason) {
      if (!this.hasWarned)
        this.log.warn('secrets of replicas are stored on disk, because no tmpfs can be mounted', {
          directory: this.folder,
          ...errorFields(reason),
        });
      this.hasWarned = true;
      return false;
    }
  }
}
