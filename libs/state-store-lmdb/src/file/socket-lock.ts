import { randomBytes } from 'node:crypto';
import { link, open, readdir, rm } from 'node:fs/promises';
import { connect, createServer, type Server } from 'node:net';
import { join } from 'node:path';
import { CloudlessError, errorCodeOf, errorMessageOf } from '@cloudless/base';
import { diskFullError } from '../engine/lmdb-errors.js';
import { getFileIdentity } from './file-identity.js';
import type { DirectoryLock } from './lock-holder.js';

/** Name of a lock, with its number. */
const LOCK_NAME = /^lock-([1-9]\d{0,14})$/;
/** Name of a socket that is not a lock yet. */
const DRAFT_NAME = /^draft-[0-9a-f]{16}\.lock$/;
/** Random bytes in the name of a draft. */
const DRAFT_BYTES = 8;
/**
 * Attempts to acquire the lock. Each failed attempt means that another process was faster and then
 * released the lock.
 */
const MAX_ATTEMPTS = 10;

/**
 * Acquires a lock: a Unix socket in the directory that listens as long as its process lives.
 *
 * A connection attempt shows whether a process listens: across network, PID and mount namespaces,
 * while the holder is stopped, and at once after the holder was killed. Process ids and start times
 * are not used, because they have no meaning in another namespace.
 *
 * The socket with the highest number is the lock. To replace a socket without a listener, a process
 * links its own socket, which already listens, under the next number (`link` is atomic and fails
 * when the name exists), and only then removes lower numbers. So no two processes can replace the
 * same holder, and a slow process finds a higher number and gives up its own. The highest number is
 * never removed, so numbers never restart.
 * @returns Undefined when a live process holds the lock.
 * @throws kind `unavailable` when the file system does not support such a lock, `exhausted` when
 *   the file system is full.
 * @see unix(7), "Pathname sockets"
 */
export async function acquireSocketLock(directory: string): Promise<DirectoryLock | undefined> {
  // paths go through a descriptor, because a socket path has at most 107 bytes
  const descriptor = await open(directory, 'r');
  const inDirectory = (name: string): string => join(`/proc/self/fd/${descriptor.fd}`, name);
  const draft = `draft-${randomBytes(DRAFT_BYTES).toString('hex')}.lock`;
  let server: Server | undefined;
  const releaseLock = async (): Promise<void> => {
    await new Promise<void>((resolve) =>
      server === undefined ? resolve() : server.close(() => resolve()),
    );
    await rm(inDirectory(draft), { force: true });
    await descriptor.close();
  };
  try {
    server = await listen(inDirectory(draft));
    const number = await linkNextNumber(inDirectory, draft);
    if (number === undefined) {
      await releaseLock();
      return undefined;
    }
    const file = join(directory, `lock-${number}`);
    const ownIdentity = getFileIdentity(inDirectory(`lock-${number}`));
    return {
      release: releaseLock,
      isHeld: () => [ownIdentity, 'unknown'].includes(getFileIdentity(file)),
    };
  } catch (cause) {
    await releaseLock();
    if (isDiskFull(cause)) throw diskFullError(directory, cause);
    throw cause instanceof CloudlessError ? cause : createLockError(directory, cause);
  }
}

/** Returns true for the name of a lock, or of a draft that an interrupted process left behind. */
export function isLockFile(name: string): boolean {
  return LOCK_NAME.test(name) || DRAFT_NAME.test(name);
}

/** Returns the path of a file in the locked directory. */
type PathInDirectory = (name: string) => string;

/**
 * Links the draft under the next number.
 * @returns The number of the new lock; undefined when a live process holds the lock.
 */
async function linkNextNumber(within: PathInDirectory, draft: string): Promise<number | undefined> {
  for (let attempt = 0; attempt < MAX_ATTEMPTS; attempt += 1) {
    const highest = (await readLockNumbers(within)).at(-1);
    if (highest !== undefined && (await isListening(within(`lock-${highest}`)))) return undefined;
    const number = (highest ?? 0) + 1;
    if (!(await tryLink(within(draft), within(`lock-${number}`)))) continue;
    const numbers = await readLockNumbers(within);
    if (numbers.at(-1) === number) {
      await removeOthers(within, number);
      return number;
    }
    await rm(within(`lock-${number}`), { force: true });
  }
  throw new CloudlessError('unavailable', 'other processes keep taking the lock; try again');
}

/** Returns the numbers of all locks in the directory, ascending. */
async function readLockNumbers(within: PathInDirectory): Promise<readonly number[]> {
  const numbers = (await readdir(within('.'))).flatMap((name) => LOCK_NAME.exec(name)?.[1] ?? []);
  return numbers.map(Number).sort((a, b) => a - b);
}

/**
 * Removes lower numbers and drafts. A process that still uses a removed file finds at its next step
 * that another process holds the lock.
 */
async function removeOthers(within: PathInDirectory, ownNumber: number): Promise<void> {
  for (const name of await readdir(within('.'))) {
    const number = LOCK_NAME.exec(name)?.[1];
    if (DRAFT_NAME.test(name) || (number !== undefined && Number(number) < ownNumber))
      await rm(within(name), { force: true });
  }
}

/** @returns False when `name` exists, or the new holder of the lock has removed the draft. */
async function tryLink(draft: string, name: string): Promise<boolean> {
  try {
    await link(draft, name);
    return true;
  } catch (reason) {
    if (['EEXIST', 'ENOENT'].includes(errorCodeOf(reason) ?? '')) return false;
    throw reason;
  }
}

/** Creates a socket that listens, and that does not keep the process alive. */
function listen(path: string): Promise<Server> {
  const server = createServer((connection) => connection.destroy());
  return new Promise((resolve, reject) => {
    server.once('error', reject);
    server.listen({ path }, () => {
      server.off('error', reject);
      server.unref();
      resolve(server);
    });
  });
}

/**
 * @returns False only when certainly no process listens: after any other error the holder may be
 *   alive.
 */
function isListening(path: string): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect(path, () => {
      socket.destroy();
      resolve(true);
    });
    socket.once('error', (reason) =>
      resolve(!['ECONNREFUSED', 'ENOENT'].includes(errorCodeOf(reason) ?? '')),
    );
  });
}

function isDiskFull(reason: unknown): boolean {
  return ['ENOSPC', 'EDQUOT'].includes(errorCodeOf(reason) ?? '');
}

function createLockError(directory: string, cause: unknown): CloudlessError {
  return new CloudlessError(
    'unavailable',
    `data directory ${directory} cannot be locked (${errorMessageOf(cause)}); choose one on a local file system with ` +
      'sockets and hard links',
    { cause },
  );
}
