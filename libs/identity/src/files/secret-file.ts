import { constants } from 'node:fs';
import { link, mkdir, open, rename, rm, stat } from 'node:fs/promises';
import type { FileHandle } from 'node:fs/promises';
import { dirname, normalize } from 'node:path';
import { errorCodeOf, quoteForShell } from '@cloudless/base';
import { toFileError, refuse } from './file-errors.js';

/** Largest size of a secret file in bytes. The largest, a certificate chain, has about 2500. */
export const MAX_SECRET_BYTES = 64 * 1024;

const SECRET_MODE = 0o600;
const PRIVATE_DIRECTORY_MODE = 0o700;
/** Permission bits of the group and of others. */
const ACCESS_OF_OTHERS = 0o077;
const PERMISSIONS = 0o777;

/**
 * Reads a file with a secret, such as a private key. Never waits: named pipes are refused.
 * @throws {@link CloudlessError} of kind `notFound` when the file does not exist; `precondition` when
 *   the group or others can access the file, unless it is a credential of systemd (the message
 *   names the command that changes this), when the file belongs to another user, is a symbolic
 *   link, not a regular file, or larger than 64 KiB.
 */
export async function readSecretFile(path: string): Promise<Uint8Array> {
  // O_NONBLOCK: opening a named pipe would wait for a writer.
  const flags = constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK;
  const file = await open(path, flags).catch((reason: unknown) => {
    if (errorCodeOf(reason) === 'ELOOP') {
      throw refuse(
        `${path} is a symbolic link; a file with a secret must be the file itself, so that its permissions and its owner are known`,
      );
    }
    throw toFileError(reason, `${path} cannot be read`);
  });
  try {
    await checkSecretFile(file, path);
    return await readBounded(file, path);
  } finally {
    await file.close();
  }
}

async function checkSecretFile(file: FileHandle, path: string): Promise<void> {
  const stats = await file.stat();
  if (!stats.isFile()) throw refuse(`${path} is not a regular file`);
  checkOwner(path, stats.uid);
  if (!isPrivate(path, stats)) {
    throw refuse(
      `${path} holds a secret and has mode ${formatMode(stats.mode)}, so that other users can access it; run: chmod 600 ${quoteForShell(path)}`,
    );
  }
}

/** Directory in which systemd mounts the credentials of services, each readable by one service. */
const SYSTEMD_CREDENTIALS = '/run/credentials/';
/** Permission of the group to read. */
const READ_OF_GROUP = 0o040;

/**
 * Returns true when only the owner of a file can access it. A credential of systemd belongs to root,
 * and an access control list lets the user of the service read it, which the mode shows as the
 * permission of the group to read: 0440.
 * @see systemd.exec(5) "LoadCredential=", acl(5) "CORRESPONDENCE BETWEEN ACL ENTRIES AND FILE
 *   PERMISSION BITS"
 */
export function isPrivate(
  path: string,
  { uid, mode }: { readonly uid: number; readonly mode: number },
): boolean {
  const isCredential = uid === 0 && normalize(path).startsWith(SYSTEMD_CREDENTIALS);
  return (mode & ACCESS_OF_OTHERS & (isCredential ? ~READ_OF_GROUP : ~0)) === 0;
}

/**
 * Returns true when a file of the user `uid` may hold a secret of the user `self`. Root may read
 * every file, and the files of root are as trustworthy as root.
 */
export function isTrustedOwner(uid: number, self: number): boolean {
  return uid === self || uid === 0 || self === 0;
}

/** @throws kind `precondition` when another user than root owns the file. */
function checkOwner(path: string, uid: number): void {
  const self = process.geteuid?.() ?? 0;
  if (isTrustedOwner(uid, self)) return;
  throw refuse(
    `${path} belongs to the user with the id ${uid}, this process runs as ${self}; run: chown ${self} ${quoteForShell(path)}`,
  );
}

async function readBounded(file: FileHandle, path: string): Promise<Uint8Array> {
  const buffer = new Uint8Array(MAX_SECRET_BYTES + 1);
  let length = 0;
  for (;;) {
    const { bytesRead } = await file.read(buffer, length, buffer.length - length, null);
    length += bytesRead;
    if (length > MAX_SECRET_BYTES) throw refuse(`${path} is larger than ${MAX_SECRET_BYTES} bytes`);
    if (bytesRead === 0) return buffer.slice(0, length);
  }
}

/**
 * Creates a file with a secret, mode 0600. Readers see the complete file or none, also after a power
 * failure. One writer at a time.
 * @throws {@link CloudlessError} of kind `exists` when the file exists, which is never overwritten.
 */
export async function writeSecretFile(path: string, bytes: Uint8Array | string): Promise<void> {
  const draft = await writeDraft(path, bytes);
  try {
    // Unlike rename, link does not replace a file.
    await link(draft, path);
  } catch (reason) {
    throw toFileError(reason, `${path} cannot be created`);
  } finally {
    await rm(draft, { force: true });
  }
  await syncDirectory(dirname(path));
}

/**
 * Creates or replaces a file with a secret, mode 0600. Readers see the complete old or the complete
 * new file, also after a power failure. A symbolic link is replaced, not followed. One writer at a
 * time.
 */
export async function replaceSecretFile(path: string, bytes: Uint8Array | string): Promise<void> {
  const draft = await writeDraft(path, bytes);
  try {
    await rename(draft, path);
  } catch (reason) {
    await rm(draft, { force: true });
    throw toFileError(reason, `${path} cannot be replaced`);
  }
  await syncDirectory(dirname(path));
}

/** Writes the complete content to a second file beside `path`, and returns the path of that file. */
async function writeDraft(path: string, bytes: Uint8Array | string): Promise<string> {
  const draft = `${path}.new`;
  try {
    await rm(draft, { force: true }); // of an earlier process that ended in between
    await createSyncedFile(draft, bytes);
    return draft;
  } catch (reason) {
    await rm(draft, { force: true }).catch(() => undefined);
    throw toFileError(reason, `${path} cannot be written`);
  }
}

/** Creates a file of mode 0600 with the content on disk. Fails when the file exists. */
export async function createSyncedFile(path: string, bytes: Uint8Array | string): Promise<void> {
  const file = await open(path, 'wx', SECRET_MODE);
  try {
    await file.chmod(SECRET_MODE); // independent of the umask
    await file.writeFile(bytes);
    await file.sync();
  } finally {
    await file.close();
  }
}

/** Flushes a directory, so that its entries are still there after a power failure. */
export async function syncDirectory(path: string): Promise<void> {
  const directory = await open(path, constants.O_RDONLY | constants.O_DIRECTORY);
  try {
    await directory.sync();
  } finally {
    await directory.close();
  }
}

/**
 * Creates a directory for secrets with mode 0700, or checks the existing one. The parent must exist.
 * @throws {@link CloudlessError} of kind `notFound` without a parent; `precondition` when the group
 *   or others can access the directory, when the directory belongs to another user, or when the path
 *   is something else.
 */
export async function makePrivateDirectory(path: string): Promise<void> {
  try {
    await mkdir(path, { mode: PRIVATE_DIRECTORY_MODE });
    await syncDirectory(dirname(path));
  } catch (reason) {
    if (errorCodeOf(reason) !== 'EEXIST')
      throw toFileError(reason, `the directory ${path} cannot be created`);
  }
  const stats = await stat(path).catch((reason: unknown) => {
    throw toFileError(reason, `the directory ${path} cannot be read`);
  });
  if (!stats.isDirectory()) throw refuse(`${path} is not a directory`);
  checkOwner(path, stats.uid);
  if (!isPrivate(path, stats)) {
    throw refuse(
      `the directory ${path} holds secrets and has mode ${formatMode(stats.mode)}, so that other users can access it; run: chmod 700 ${quoteForShell(path)}`,
    );
  }
}

function formatMode(mode: number): string {
  return (mode & PERMISSIONS).toString(8).padStart(4, '0');
}
