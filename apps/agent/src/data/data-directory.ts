import { chmodSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import net from 'node:net';
import { join } from 'node:path';
import { CloudlessError, errorCodeOf, errorMessageOf } from '@cloudless/base';
import { makeDirectorySync } from '@cloudless/app-kit';
import { isNoSpace } from './disk-reserve.js';

/** Data directory that is locked by this process. */
export interface DataDirectory {
  readonly path: string;
  /** Releases the lock and removes the pid file. */
  release(): Promise<void>;
}

const PID_FILE = 'agent.pid';
const LOCK_SOCKET = 'agent.lock';

/**
 * Creates the directory (mode 0700) and locks it for this process. The lock ends with the process,
 * however the process ends: on Linux the lock is an abstract socket named after device and inode of
 * the directory (unix(7)), elsewhere a socket file that accepts connections while its owner lives.
 * @throws kind `precondition` when another agent holds the lock, with its process id, or when other
 *   users can read the directory.
 */
export async function lockDataDirectory(path: string): Promise<DataDirectory> {
  makePrivate(path);
  const server = await lock(path);
  writePid(join(path, PID_FILE));
  return {
    path,
    release: () => {
      rmSync(join(path, PID_FILE), { force: true });
      return new Promise((resolve) => server.close(() => resolve()));
    },
  };
}

/**
 * Writes the process id for the message to a second agent. The lock does not depend on the file, so
 * that an agent starts and a reset works on a full disk.
 */
function writePid(file: string): void {
  try {
    writeFileSync(file, `${process.pid}\n`, { mode: 0o600 });
  } catch (reason) {
    if (!isNoSpace(reason)) throw reason;
    rmSync(file, { force: true }); // the file is empty, or has the id of an earlier process
  }
}

/** Creates the directory when it is missing. Rejects a directory that other users can read. */
function makePrivate(path: string): void {
  try {
    // chmod, because the umask may have cleared bits of the mode
    if (makeDirectorySync(path, 0o700) !== undefined) chmodSync(path, 0o700);
  } catch (cause) {
    if (errorCodeOf(cause) === 'EEXIST')
      throw new CloudlessError('precondition', `${path} is not a directory`, { cause });
    throw new CloudlessError(
      'precondition',
      `cannot create the data directory ${path}: ${errorMessageOf(cause)}`,
      { cause },
    );
  }
  if ((statSync(path).mode & 0o077) !== 0) {
    throw new CloudlessError(
      'precondition',
      `data directory ${path} can be read by other users: make it private (chmod 700 ${path})`,
    );
  }
}

async function lock(path: string): Promise<net.Server> {
  const { dev, ino } = statSync(path);
  const name =
    process.platform === 'linux' ? `\0cloudless-agent-${dev}-${ino}` : join(path, LOCK_SOCKET);
  for (let attempt = 0; attempt < 2; attempt += 1) {
    try {
      return await listen(name);
    } catch (reason) {
      if (errorCodeOf(reason) !== 'EADDRINUSE') throw reason;
      if (process.platform === 'linux' || (await acceptsConnections(name))) break;
      rmSync(name, { force: true }); // a killed process has left the socket file
    }
  }
  throw new CloudlessError(
    'precondition',
    `data directory ${path} is in use by another agent${describeHolder(path)}`,
  );
}

function listen(name: string): Promise<net.Server> {
  const server = net.createServer((socket) => socket.destroy());
  return new Promise((resolve, reject) => {
    server.once('error', reject);
    server.listen(name, () => {
      server.unref();
      resolve(server);
    });
  });
}

/** Resolves with true when a process accepts connections at the socket file. */
function acceptsConnections(name: string): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = net.connect(name);
    socket.once('connect', () => resolve(true)).once('error', () => resolve(false));
    socket.once('close', () => socket.destroy());
  });
}

function describeHolder(path: string): string {
  try {
    return `, process ${readFileSync(join(path, PID_FILE), 'utf8').trim()}`;
  } catch {
    return ''; // the other agent has not written its pid yet
  }
}
