import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import { errorKindOf } from '@cloudless/base';
import type { IdentityFileName, IdentityFiles } from '@cloudless/agent-core';
import { makePrivateDirectory, readSecretFile, replaceSecretFile } from '@cloudless/identity/files';
import { writeFlushed, type DiskReserve } from '../data/disk-reserve.js';
import { syncFolder } from '../data/sync-folder.js';
import { writeFromReserve } from '../data/write-from-reserve.js';

/** Folder of the identity in the data directory of an agent. */
export const IDENTITY_FOLDER = 'identity';

/** Suffix of a file that is being written, as {@link replaceSecretFile} names it. */
const DRAFT = '.new';

export interface IdentityDirectoryOptions {
  /**
   * Space for writes on a full disk, so that a node whose disk stays full keeps its identity.
   * Default: such writes fail.
   */
  readonly reserve?: DiskReserve;
  /** Writes of files, for tests of a full disk. Default: {@link writeFlushed}. */
  readonly writeFile?: typeof writeFlushed;
  /** Default: {@link replaceSecretFile}. */
  readonly replaceFile?: typeof replaceSecretFile;
}

/**
 * The identity directory on disk: mode 0700, with files of mode 0600. A write that finds no space
 * uses the disk reserve.
 */
export class IdentityDirectory implements IdentityFiles {
  private constructor(
    private readonly path: string,
    private readonly options: IdentityDirectoryOptions,
  ) {}

  /**
   * Creates the directory when it is missing.
   * @throws kind `precondition` when other users can access the directory.
   */
  static async open(
    dataDir: string,
    options: IdentityDirectoryOptions = {},
  ): Promise<IdentityDirectory> {
    const path = join(dataDir, IDENTITY_FOLDER);
    await makePrivateDirectory(path);
    return new IdentityDirectory(path, options);
  }

  async read(name: IdentityFileName): Promise<string | undefined> {
    try {
      return Buffer.from(await readSecretFile(join(this.path, name))).toString('utf8');
    } catch (reason) {
      if (errorKindOf(reason) === 'notFound') return undefined;
      throw reason;
    }
  }

  async write(name: IdentityFileName, content: string): Promise<void> {
    const { reserve, writeFile = writeFlushed, replaceFile = replaceSecretFile } = this.options;
    const path = join(this.path, name);
    try {
      await replaceFile(path, content);
    } catch (reason) {
      if (reserve === undefined || errorKindOf(reason) !== 'exhausted') throw reason;
      const options = { reserve, writeFile, draftSuffix: DRAFT, isSecret: true };
      if (!(await writeFromReserve(path, Buffer.from(content), options))) throw reason;
    }
  }

  async remove(name: IdentityFileName): Promise<void> {
    const path = join(this.path, name);
    await (this.options.reserve?.removeSecret(path) ?? rm(path, { force: true }));
    await syncFolder(this.path);
  }
}
