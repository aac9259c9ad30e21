import { execFile } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { link, readFile, rename, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { CloudlessError, errorCodeOf } from '@cloudless/base';
import { createHeldError, type DirectoryLock } from './lock-holder.js';

const run = promisify(execFile);

/**
 * Attempts to replace the lock of a process that has ended. Each failed attempt means that another
 * process was faster.
 */
const MAX_ATTEMPTS = 5;

/**
 * Acquires a lock file with process id, start time and boot id, for systems without abstract
 * sockets. Replaces a lock whose process has ended, whose process id belongs to a later process, or
 * which is from before a reboot.
 * @throws kind `unavailable`, naming the directory and the process that holds the lock.
 */
export async function acquireFileLock(directory: string): Promise<DirectoryLock> {
  const file = join(directory, 'lock');
  const ownContent = await describeProcess(process.pid);
  if (ownContent === undefined)
    throw new CloudlessError(
      'unavailable',
      `data directory ${directory} cannot be locked: ps does not know this process`,
    );
  for (let attempt = 0; attempt < MAX_ATTEMPTS; attempt += 1) {
    if (await createAtomically(file, ownContent))
      return { release: () => rm(file, { force: true }), isHeld: () => isHeldBy(file, ownContent) };
    const content = await readFile(file, 'utf8').catch(() => undefined);
    if (content === undefined) continue; // released meanwhile
    const pid = content.split('\n')[0] ?? '';
    if (content === (await describeProcess(Number(pid)))) throw createHeldError(directory, pid);
    await removeStaleLock(file, content);
  }
  throw new CloudlessError(
    'unavailable',
    `data directory ${directory} could not be locked: other processes keep taking the lock; try again`,
  );
}

function isHeldBy(file: string, content: string): boolean {
  try {
    return readFileSync(file, 'utf8') === content;
  } catch {
    return false;
  }
}

let uniqueNameCount = 0;

/** Returns a file name that no other process and no other call of this process uses. */
function createUniqueName(file: string): string {
  uniqueNameCount += 1;
  return `${file}.${process.pid}.${uniqueNameCount}`;
}

/**
 * Creates a file atomically with all its content.
 * @returns False when the file exists.
 */
async function createAtomically(file: string, content: string): Promise<boolean> {
  const draft = createUniqueName(file);
  await writeFile(draft, content, { mode: 0o600 });
  try {
    await link(draft, file);
    return true;
  } catch (reason) {
    if (errorCodeOf(reason) === 'EEXIST') return false;
    throw reason;
  } finally {
    await rm(draft, { force: true });
  }
}

/**
 * Removes a stale lock file. Puts the file back if another process has replaced it meanwhile.
 * @param staleContent - Content of the stale lock file.
 */
async function removeStaleLock(file: string, staleContent: string): Promise<void> {
  const movedFile = createUniqueName(file);
  try {
    await rename(file, movedFile);
    if ((await readFile(movedFile, 'utf8')) !== staleContent) await link(movedFile, file);
  } catch {
    return; // another process was faster; the next attempt sees the result
  } finally {
    await rm(movedFile, { force: true });
  }
}

/** Returns process id, start time and boot id, one a line; undefined for an unknown process. */
async function describeProcess(pid: number): Promise<string | undefined> {
  if (!Number.isSafeInteger(pid) || pid < 1) return undefined;
  const started = await run('ps', ['-o', 'lstart=', '-p', String(pid)], {
    env: { ...FIXED_FORMAT },
  }).catch(() => undefined);
  return started === undefined
    ? undefined
    : `${pid}\n${started.stdout.trim()}\n${await readBootId()}\n`;
}

/** Environment of `ps` with a fixed format, because start times are compared as text. */
const FIXED_FORMAT = { LC_ALL: 'C', TZ: 'UTC', PATH: '/usr/bin:/bin:/usr/sbin:/sbin' };

async function readBootId(): Promise<string> {
  const linux = await readFile('/proc/sys/kernel/random/boot_id', 'utf8').catch(() => undefined);
  if (linux !== undefined) return linux.trim();
  const { stdout } = await run('sysctl', ['-n', 'kern.boottime'], { env: { ...FIXED_FORMAT } });
  return stdout.trim();
}
