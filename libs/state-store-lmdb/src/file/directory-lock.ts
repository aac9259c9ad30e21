import { readFile, writeFile } from 'node:fs/promises';
import { createServer, type Server } from 'node:net';
import { hostname } from 'node:os';
import { join } from 'node:path';
import { CloudlessError } from '@cloudless/base';
import type { DataDirectory } from './data-directory.js';
import { getErrorCode } from './error-code.js';
import { acquireFileLock } from './file-lock.js';
import { createHeldError, type DirectoryLock } from './lock-holder.js';
import { acquireSocketLock } from './socket-lock.js';

/** Names the process that holds the lock, for error messages of other processes. */
export const HOLDER_FILE = 'holder';

/**
 * Acquires the lock of a data directory. The lock ends with the process, also after kill -9.
 * @throws kind `unavailable`, naming the directory and the process that holds the lock.
 */
export async function lockDirectory(directory: DataDirectory): Promise<DirectoryLock> {
  if (process.platform !== 'linux') return acquireFileLock(directory.path);
  const name = await acquireAbstractSocket(directory);
  const lock = await acquireSocketLock(directory.path).catch(async (reason: unknown) => {
    await name.release();
    throw reason;
  });
  if (lock === undefined) {
    await name.release();
    throw await createInUseError(directory.path);
  }
  await writeHolder(directory.path);
  return {
    isHeld: () => lock.isHeld(),
    release: async () => {
      await lock.release();
      await name.release();
    },
  };
}

/**
 * Binds an abstract socket. Its name is unique in a network namespace and cannot be deleted, so it
 * keeps out a second process of the namespace even after the lock file in the directory was
 * deleted.
 * @see unix(7), "Abstract sockets"
 */
async function acquireAbstractSocket({
  path,
  identity,
}: DataDirectory): Promise<Pick<DirectoryLock, 'release'>> {
  const server = createServer((connection) => connection.destroy());
  try {
    await listen(server, `\0cloudless/state-store/${identity}`);
  } catch (cause) {
    if (getErrorCode(cause) === 'EADDRINUSE') throw await createInUseError(path);
    throw new CloudlessError('unavailable', `data directory ${path} cannot be locked`, { cause });
  }
  server.unref();
  return { release: () => new Promise((resolve) => server.close(() => resolve())) };
}

async function createInUseError(path: string): Promise<CloudlessError> {
  const text = await readFile(join(path, HOLDER_FILE), 'utf8').catch(() => 'unknown');
  const [pid = '', host = hostname()] = text.trim().split('\n');
  return createHeldError(path, host === hostname() ? pid : `${pid} of host ${host}`);
}

/**
 * Writes the process id in this process's PID namespace, and the host name, which distinguishes
 * containers.
 */
async function writeHolder(path: string): Promise<void> {
  const text = `${process.pid}\n${hostname()}\n`;
  // a full disk must not prevent the start
  await writeFile(join(path, HOLDER_FILE), text, { mode: 0o600 }).catch(() => undefined);
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
