import { readFile, writeFile } from 'node:fs/promises';
import { createServer, type Server } from 'node:net';
import { hostname } from 'node:os';
import { join } from 'node:path';
import { CloudlessError, errorCodeOf } from '@cloudless/base';
import type { DataDirectory } from './data-directory.js';
import { acquireFileLock } from './file-lock.js';
import { createHeldError, type DirectoryLock } from './lock-holder.js';
import { acquireSocketLock } from './socket-lock.js';

/** Name of the file with the process that holds the lock, for error messages of other processes. */
export const HOLDER_FILE = 'holder';

/**
 * Acquires the lock of a data directory. The lock ends with the process, also after kill -9.
 * @throws kind `unavailable`, naming the directory and the process that holds the lock.
 */
export async function lockDirectory(directory: DataDirectory): Promise<DirectoryLock> {
  if (process.platform !== 'linux') return acquireFileLock(directory.path);
  const abstractLock = await acquireAbstractSocket(directory);
  const lock = await acquireSocketLock(directory.path).catch(async (reason: unknown) => {
    await abstractLock.release();
    throw reason;
  });
  if (lock === undefined) {
    await abstractLock.release();
    throw await createInUseError(directory.path);
  }
  await writeHolder(directory.path);
  return {
    isHeld: () => lock.isHeld(),
    release: async () => {
      await lock.release();
      await abstractLock.release();
    },
  };
}

/**
 * Binds an abstract socket, whose name is unique in a network namespace and cannot be deleted. The
 * socket excludes a second process of the namespace also after the lock file in the directory was
 * deleted.
 * @throws kind `unavailable` when another process has bound the socket.
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
    if (errorCodeOf(cause) === 'EADDRINUSE') throw await createInUseError(path);
    throw new CloudlessError('unavailable', `data directory ${path} cannot be locked`, { cause });
  }
  server.unref();
  return { release: () => new Promise((resolve) => server.close(() => resolve())) };
}

/** Creates the error for a locked directory, with the process that the holder file names. */
async function createInUseError(path: string): Promise<CloudlessError> {
  const text = await readFile(join(path, HOLDER_FILE), 'utf8').catch(() => 'unknown');
  const [pid = '', host = hostname()] = text.trim().split('\n');
  return createHeldError(path, host === hostname() ? pid : `${pid} of host ${host}`);
}

/**
 * Writes the process id, as this process sees it in its PID namespace, and the host name, which
 * distinguishes containers.
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
