import { randomBytes } from 'node:crypto';
import { link, open, readdir, rm } from 'node:fs/promises';
import { connect, createServer, type Server } from 'node:net';
import { join } from 'node:path';
import { CloudlessError, errorMessageOf } from '@cloudless/base';
import { diskFullError } from '../engine/lmdb-errors.js';
import { getErrorCode } from './error-code.js';
import { getFileIdentity } from './file-identity.js';
import type { DirectoryLock } from './lock-holder.js';

const LOCK_NAME = /^lock-([1-9]\d{0,14})$/;
const DRAFT_NAME = /^draft-[0-9a-f]{16}\.lock$/;
const DRAFT_BYTES = 8;
/**
 * Each failed attempt without a holder was lost to another process that took the lock meanwhile.
 */
const MAX_ATTEMPTS = 10;

/**
 * Acquires a lock: a Unix socket in the directory that listens as long as its process lives.
 *
 * The kernel knows whether a process listens: across network, PID and mount namespaces, while the
 * holder is stopped, and at once after it was killed. Process ids and start times play no part,
 * because they have no meaning in another namespace.
 *
 * The socket with the highest number is the lock. To take over from a socket without a listener, a
 * process links its own socket, which already listens, under the next number (`link` is atomic and
 * fails when the name exists), and only then removes lower numbers. So no two processes can take
 * over from the same holder, and a slow process finds a higher number and steps back. The highest
 * number is never removed, so numbers never restart.
 * @returns Undefined when a live process holds the lock.
 * @throws kind `unavailable` when the file system does not support such a lock, `exhausted` when it
 *   is full.
 * @see unix(7), "Pathname sockets"
 */
export async function acquireSocketLock(directory: string): Promise<DirectoryLock | undefined> {
  // Through a descriptor, because a socket path has at most 107 bytes.
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
    const number = await takeNumber(inDirectory, draft);
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

/** Says whether a file is a lock, or was left behind by an attempt to acquire one. */
export function isLockFile(name: string): boolean {
  return LOCK_NAME.test(name) || DRAFT_NAME.test(name);
}

type PathInDirectory = (name: string) => string;

/** @returns The number of the new lock; undefined when a live process holds the lock. */
async function takeNumber(within: PathInDirectory, draft: string): Promise<number | undefined> {
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

async function readLockNumbers(within: PathInDirectory): Promise<readonly number[]> {
  const numbers = (await readdir(within('.'))).flatMap((name) => LOCK_NAME.exec(name)?.[1] ?? []);
  return numbers.map(Number).sort((a, b) => a - b);
}

/**
 * Removes lower numbers and drafts. A process that still uses one of them finds that the lock is
 * held.
 */
async function removeOthers(within: PathInDirectory, ownNumber: number): Promise<void> {
  for (const name of await readdir(within('.'))) {
    const number = LOCK_NAME.exec(name)?.[1];
    if (DRAFT_NAME.test(name) || (number !== undefined && Number(number) < ownNumber))
      await rm(within(name), { force: true });
  }
}

/** @returns False when the name exists, or the holder has removed the draft. */
async function tryLink(draft: string, name: string): Promise<boolean> {
  try {
    await link(draft, name);
    return true;
  } catch (reason) {
    if (['EEXIST', 'ENOENT'].includes(String(getErrorCode(reason)))) return false;
    throw reason;
  }
}

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
 * @returns False only when no process listens. A process that is unreachable for another reason may
 *   be alive.
 */
function isListening(path: string): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect(path, () => {
      socket.destroy();
      resolve(true);
    });
    socket.once('error', (reason) =>
      resolve(!['ECONNREFUSED', 'ENOENT'].includes(String(getErrorCode(reason)))),
    );
  });
}

function isDiskFull(reason: unknown): boolean {
  return ['ENOSPC', 'EDQUOT'].includes(String(getErrorCode(reason)));
}

function createLockError(directory: string, cause: unknown): CloudlessError {
  return new CloudlessError(
    'unavailable',
    `data directory ${directory} cannot be locked (${errorMessageOf(cause)}); choose one on a local file system with ` +
      'sockets and hard links',
    { cause },
  );
}
