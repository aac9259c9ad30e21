import { execFile } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { link, readFile, rename, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { CloudlessError } from '@cloudless/base';
import { createHeldError, type DirectoryLock } from './lock-holder.js';

const run = promisify(execFile);

/**
 * Attempts to remove a dead process's lock. Each failed attempt means that another process was
 * faster.
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
    const found = await readFile(file, 'utf8').catch(() => undefined);
    if (found === undefined) continue; // released meanwhile
    const pid = found.split('\n')[0] ?? '';
    if (found === (await describeProcess(Number(pid)))) throw createHeldError(directory, pid);
    await removeStaleLock(file, found);
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

let asideCount = 0;

/** A unique file name. */
function createUniqueName(file: string): string {
  asideCount += 1;
  return `${file}.${process.pid}.${asideCount}`;
}

/** Creates the file atomically with all its content. @returns False when the file exists. */
async function createAtomically(file: string, content: string): Promise<boolean> {
  const draft = createUniqueName(file);
  await writeFile(draft, content, { mode: 0o600 });
  try {
    await link(draft, file);
    return true;
  } catch (reason) {
    if ((reason as { code?: unknown }).code === 'EEXIST') return false;
    throw reason;
  } finally {
    await rm(draft, { force: true });
  }
}

/** Removes a stale lock. Puts the file back if another process has replaced it meanwhile. */
async function removeStaleLock(file: string, stale: string): Promise<void> {
  const aside = createUniqueName(file);
  try {
    await rename(file, aside);
    if ((await readFile(aside, 'utf8')) !== stale) await link(aside, file);
  } catch {
    return; // another process was faster; the next attempt sees the result
  } finally {
    await rm(aside, { force: true });
  }
}

/** `pid`, start time and boot id in one line each; undefined when there is no such process. */
async function describeProcess(pid: number): Promise<string | undefined> {
  if (!Number.isSafeInteger(pid) || pid < 1) return undefined;
  const started = await run('ps', ['-o', 'lstart=', '-p', String(pid)], {
    env: { ...SAME_FORMAT },
  }).catch(() => undefined);
  return started === undefined
    ? undefined
    : `${pid}\n${started.stdout.trim()}\n${await readBootId()}\n`;
}

/** The start time is compared as text, so its format must be fixed. */
const SAME_FORMAT = { LC_ALL: 'C', TZ: 'UTC', PATH: '/usr/bin:/bin:/usr/sbin:/sbin' };

async function readBootId(): Promise<string> {
  const linux = await readFile('/proc/sys/kernel/random/boot_id', 'utf8').catch(() => undefined);
  if (linux !== undefined) return linux.trim();
  const { stdout } = await run('sysctl', ['-n', 'kern.boottime'], { env: { ...SAME_FORMAT } });
  return stdout.trim();
}
