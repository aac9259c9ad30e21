import { readFile, writeFile } from 'node:fs/promises';
import { createServer, type Server } from 'node:net';
import { join } from 'node:path';
import { CloudlessError } from '@cloudless/base';
import type { DataDirectory } from './data-directory.js';
import { acquireFileLock } from './file-lock.js';
import { heldBy, type DirectoryLock } from './lock-holder.js';

/** Tells others who holds a directory. */
export const HOLDER_FILE = 'holder';

/**
 * Takes the lock of a data directory; it ends with the process, however that ends.
 * @throws kind `unavailable`, naming the directory and the process that holds it.
 */
export function lockDirectory(directory: DataDirectory): Promise<DirectoryLock> {
  return process.platform === 'linux' ? acquireSocketLock(directory) : acquireFileLock(directory.path);
}

/**
 * Linux: the name of an abstract socket, which exists once per network namespace and vanishes with its process. The file beside
 * it only tells others who holds it.
 * @see unix(7), "Abstract sockets"
 */
async function acquireSocketLock({ path, identity }: DataDirectory): Promise<DirectoryLock> {
  const server = createServer((connection) => connection.destroy());
  const holderFile = join(path, HOLDER_FILE);
  try {
    await listen(server, `\0cloudless/state-store/${identity}`);
  } catch (cause) {
    if ((cause as { code?: unknown }).code !== 'EADDRINUSE') {
      throw new CloudlessError('unavailable', `data directory ${path} cannot be locked`, { cause });
    }
    const holder = await readFile(holderFile, 'utf8').catch(() => 'unknown');
    throw heldBy(path, holder.trim());
  }
  server.unref();
  await writeFile(holderFile, `${process.pid}\n`, { mode: 0o600 }).catch(() => undefined); // a full disk must not keep us from starting
  return { release: () => new Promise((resolve) => server.close(() => resolve())) };
}

function listen(server: Server, path: string): Promise<void> {
  return new Promise((resolve, reject) => {
    server.once('error', reject);
    server.listen({ path }, () => {
      server.off('error', reject);
      resolve();
    });
  });
}
