import { X509Certificate } from 'node:crypto';
import { chmod, mkdir, readdir, readFile, realpath, rm, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { CloudlessError, errorFields, type Log } from '@cloudless/base';
import type {
  CredentialReader,
  IdentityDirectory,
  StoredWorkloadCredential,
  WorkloadCredential,
  WorkloadIdentityFiles,
} from '@cloudless/agent-core';
import { makeDirectory } from '@cloudless/app-kit';
import {
  CURRENT,
  ignoreCode,
  replaceFiles,
  setOwnership,
} from '../replica-files/versioned-directory.js';

/** Folder in the data directory with the identities of replicas. */
export const WORKLOAD_IDENTITY_FOLDER = 'workload-identities';

/** Mounts file systems in memory. */
export interface MemoryMounts {
  /** Returns false where files in memory cannot be mounted for containers. */
  isAvailable(): boolean;
  /** Mounts a tmpfs on a directory, unless one is mounted there. */
  mount(directory: string): Promise<void>;
  /** Unmounts every tmpfs on a directory and below. */
  unmount(directory: string): Promise<void>;
}

/** File names in a directory, by the content. */
const FILE_NAMES = {
  chainPem: 'tls.crt',
  keyPem: 'tls.key',
  bundlePem: 'ca.crt',
} as const;
/** Format of replica ids, which are safe as a file name. */
const REPLICA_ID = /^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$/;

/**
 * Stores certificate and key of each replica in a directory of its own, in memory where possible.
 * Only the user of the agent can enter the folder with the directories; a container sees only the
 * directory that is mounted in the container.
 *
 * `tls.crt`, `tls.key` and `ca.crt` change at the same time, see {@link replaceFiles}.
 */
export class FileWorkloadIdentities implements WorkloadIdentityFiles {
  private readonly folder: string;
  private hasWarned = false;

  constructor(
    dataDir: string,
    private readonly memory: MemoryMounts,
    private readonly log: Log,
  ) {
    this.folder = join(dataDir, WORKLOAD_IDENTITY_FOLDER);
  }

  async open(replicaId: string): Promise<IdentityDirectory> {
    const path = this.toPath(replicaId);
    await makeDirectory(this.folder, 0o700);
    await mkdir(path, { mode: 0o755 }).catch(ignoreCode('EEXIST'));
    const inMemory = await this.mount(path);
    // The umask may have cleared bits; a new tmpfs has the mode of its mount options.
    await chmod(path, 0o755);
    return { path, inMemory };
  }

  async read(replicaId: string): Promise<StoredWorkloadCredential | undefined> {
    try {
      const folder = await realpath(join(this.toPath(replicaId), CURRENT));
      const [chainPem, keyPem, bundlePem] = await Promise.all(
        Object.values(FILE_NAMES).map((name) => readFile(join(folder, name), 'utf8')),
      );
      if (chainPem === undefined || keyPem === undefined || bundlePem === undefined)
        return undefined;
      const { mtimeMs: obtainedAtMs } = await stat(join(folder, FILE_NAMES.chainPem));
      return withValidity({ chainPem, keyPem, bundlePem, obtainedAtMs });
    } catch {
      // Missing or damaged files: the agent obtains a new certificate.
      return undefined;
    }
  }

  async write(
    replicaId: string,
    credential: WorkloadCredential,
    reader: CredentialReader,
  ): Promise<StoredWorkloadCredential> {
    const stored = withValidity(credential);
    const path = this.toPath(replicaId);
    const files = (['chainPem', 'keyPem', 'bundlePem'] as const).map((field) => ({
      ...{ name: FILE_NAMES[field], content: credential[field] },
      modifiedAtMs: credential.obtainedAtMs,
    }));
    await replaceFiles(path, files, {
      permit: (file, kind) => allowReader(file, reader, kind === 'file' ? 0o400 : 0o700),
      what: 'the files of the identity',
    });
    return stored;
  }

  async remove(replicaId: string): Promise<void> {
    const path = this.toPath(replicaId);
    await this.memory.unmount(path);
    await rm(path, { recursive: true, force: true });
  }

  async list(): Promise<readonly string[]> {
    const names = await readdir(this.folder).catch(ignoreCode('ENOENT'));
    return (names ?? []).filter((name) => REPLICA_ID.test(name));
  }

  /** Removes every directory, for example when the agent leaves its cluster. */
  async removeAll(): Promise<void> {
    for (const replicaId of await this.list()) await this.remove(replicaId);
    await rm(this.folder, { recursive: true, force: true });
  }

  private toPath(replicaId: string): string {
    if (REPLICA_ID.test(replicaId)) return join(this.folder, replicaId);
    throw new CloudlessError('invalid', `${JSON.stringify(replicaId)} is not an id of a replica`);
  }

  /** Returns true when a tmpfs is mounted at the directory. Without one, files are on disk. */
  private async mount(path: string): Promise<boolean> {
    let reason: unknown;
    if (this.memory.isAvailable()) {
      try {
        await this.memory.mount(path);
        return true;
      } catch (failure) {
        reason = failure;
      }
    }
    if (!this.hasWarned)
      this.log.warn('keys of replicas are stored on disk, because no tmpfs can be mounted', {
        directory: this.folder,
        ...(reason === undefined ? {} : errorFields(reason)),
      });
    this.hasWarned = true;
    return false;
  }
}

/**
 * Gives a file or folder to the user of the container. Without a known user, every user may read:
 * only the container and root can reach the file.
 * @param mode - Permission bits of the owner.
 */
async function allowReader(
  path: string,
  { userId, groupId }: CredentialReader,
  mode: number,
): Promise<void> {
  const canChown = process.getuid?.() === 0;
  const readBits = mode & 0o500;
  if (userId === undefined || (!canChown && userId !== process.getuid?.()))
    return chmod(path, mode | (readBits >> 3) | (readBits >> 6));
  const ownMode = groupId === undefined ? mode : mode | (readBits >> 3);
  await setOwnership(path, ownMode, { userId, groupId: groupId ?? 0 });
}

/** Parses the validity of the certificate, the first in the chain. */
function withValidity(credential: WorkloadCredential): StoredWorkloadCredential {
  const { validFrom, validTo } = new X509Certificate(credential.chainPem);
  return {
    ...credential,
    notBeforeMs: Date.parse(validFrom),
    notAfterMs: Date.parse(validTo),
  };
}
