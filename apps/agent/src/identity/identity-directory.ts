import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import { errorKindOf } from '@cloudless/base';
import type { IdentityFileName, IdentityFiles } from '@cloudless/agent-core';
import { makePrivateDirectory, readSecretFile, replaceSecretFile } from '@cloudless/identity/files';
import { syncFolder } from '../data/sync-folder.js';

/** Folder of the identity in the data directory of an agent. */
export const IDENTITY_FOLDER = 'identity';

/** The identity directory on disk: mode 0700, with files of mode 0600. */
export class IdentityDirectory implements IdentityFiles {
  private constructor(private readonly path: string) {}

  /**
   * Creates the directory when it is missing.
   * @throws kind `precondition` when other users can access the directory.
   */
  static async open(dataDir: string): Promise<IdentityDirectory> {
    const path = join(dataDir, IDENTITY_FOLDER);
    await makePrivateDirectory(path);
    return new IdentityDirectory(path);
  }

  async read(name: IdentityFileName): Promise<string | undefined> {
    try {
      return Buffer.from(await readSecretFile(join(this.path, name))).toString('utf8');
    } catch (reason) {
      if (errorKindOf(reason) === 'notFound') return undefined;
      throw reason;
    }
  }

  write(name: IdentityFileName, content: string): Promise<void> {
    return replaceSecretFile(join(this.path, name), content);
  }

  async remove(name: IdentityFileName): Promise<void> {
    await rm(join(this.path, name), { force: true });
    await syncFolder(this.path);
  }
}
