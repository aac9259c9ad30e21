import { randomBytes } from 'node:crypto';
import {
  access,
  link,
  open,
  readFile,
  readdir,
  rename,
  rm,
  stat,
  writeFile,
} from 'node:fs/promises';
import { dirname } from 'node:path';
import { errorCodeOf } from '@cloudless/base';
import { makeDirectory } from '@cloudless/app-kit';
import { OpenSecretError } from './io.js';
import type { Files } from './io.js';

/** Permission bits of the group and of others. */
const OTHERS = 0o077;

/** The files of this machine. */
export class LocalFiles implements Files {
  async read(path: string): Promise<Uint8Array> {
    return new Uint8Array(await readFile(path));
  }

  async list(path: string): Promise<readonly string[] | undefined> {
    return (await stat(path)).isDirectory() ? readdir(path) : undefined;
  }

  async write(path: string, text: string): Promise<void> {
    await makeDirectory(dirname(path));
    const temporaryPath = toTemporaryPath(path);
    await writeFile(temporaryPath, text, { mode: 0o600 });
    await rename(temporaryPath, path);
  }

  exists(path: string): Promise<boolean> {
    return access(path).then(
      () => true,
      () => false,
    );
  }

  async readSecret(path: string): Promise<Uint8Array> {
    // The mode is that of the opened file, which cannot be exchanged after the check.
    const file = await open(path, 'r');
    try {
      const info = await file.stat();
      // A pipe such as that of the shell's <(…) has no other readers.
      if (info.isFile() && (info.mode & OTHERS) !== 0)
        throw new OpenSecretError(path, info.mode & 0o777);
      return new Uint8Array(await file.readFile());
    } finally {
      await file.close();
    }
  }

  createSecret(path: string, text: string): Promise<void> {
    return writeSynced(path, text);
  }

  replaceSecret(path: string, content: string | Uint8Array): Promise<void> {
    return this.replaceSecrets(new Map([[path, content]]));
  }

  async replaceSecrets(contents: ReadonlyMap<string, string | Uint8Array>): Promise<void> {
    const temporaryPaths = new Map<string, string>();
    try {
      for (const [path, content] of contents) {
        await makeDirectory(dirname(path), 0o700);
        const temporaryPath = toTemporaryPath(path);
        temporaryPaths.set(temporaryPath, path);
        await writeSynced(temporaryPath, content);
      }
      for (const [temporaryPath, path] of temporaryPaths) await rename(temporaryPath, path);
    } catch (reason) {
      for (const temporaryPath of temporaryPaths.keys()) await rm(temporaryPath, { force: true });
      throw reason;
    }
  }

  async lock(path: string, staleAfterMs: number): Promise<(() => Promise<void>) | undefined> {
    const owner = `${process.pid} ${randomBytes(8).toString('hex')}\n`;
    const unlock = async (): Promise<void> => {
      // Another process may have replaced the lock of a process that was stopped for a long time.
      const content = await readFile(path, 'utf8').catch(() => '');
      if (content === owner) await rm(path, { force: true });
    };
    for (let attempt = 0; attempt < 2; attempt += 1) {
      try {
        await writeFile(path, owner, { flag: 'wx', mode: 0o600 });
        return unlock;
      } catch (reason) {
        if (errorCodeOf(reason) !== 'EEXIST') throw reason;
      }
      if (!(await removeStaleLock(path, staleAfterMs))) return undefined;
    }
    return undefined;
  }

  remove(path: string): Promise<void> {
    return rm(path, { force: true, recursive: true });
  }
}

/**
 * Removes a lock file of a process that died.
 * @returns False when the lock file is not stale.
 */
async function removeStaleLock(path: string, staleAfterMs: number): Promise<boolean> {
  const isStale = async (file: string): Promise<boolean> =>
    Date.now() - (await stat(file)).mtimeMs > staleAfterMs;
  try {
    if (!(await isStale(path))) return false;
    // Of several processes that see the stale file, only one renames this file. If another process
    // has created its lock meanwhile, that lock is put back.
    const taken = toTemporaryPath(path);
    await rename(path, taken);
    const wasStale = await isStale(taken);
    if (!wasStale) await link(taken, path);
    await rm(taken, { force: true });
    return wasStale;
  } catch (reason) {
    if (errorCodeOf(reason) === 'ENOENT') return true;
    if (errorCodeOf(reason) === 'EEXIST') return false;
    throw reason;
  }
}

/** Creates a file with mode 0600 and flushes it to the disk. */
async function writeSynced(path: string, content: string | Uint8Array): Promise<void> {
  const file = await open(path, 'wx', 0o600);
  try {
    await file.writeFile(content);
    await file.sync();
  } finally {
    await file.close();
  }
}

function toTemporaryPath(path: string): string {
  return `${path}.${randomBytes(4).toString('hex')}`;
}
