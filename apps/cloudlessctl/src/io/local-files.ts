import { randomBytes } from 'node:crypto';
import { readFile, readdir, rename, stat, writeFile } from 'node:fs/promises';
import { dirname } from 'node:path';
import { makeDirectory } from '@cloudless/app-kit';
import type { Files } from './io.js';

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
    const temporaryPath = `${path}.${randomBytes(4).toString('hex')}`;
    await writeFile(temporaryPath, text, { mode: 0o600 });
    await rename(temporaryPath, path);
  }
}
