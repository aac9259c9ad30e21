import { linkSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { isAlive, readBootId, readStartToken } from './process-identity.js';

/**
 * The process that holds the lock. A lock is void when its holder has ended or belongs to an earlier
 * boot of the machine.
 */
interface LockHolder {
  readonly pid: number;
  readonly startToken: string;
  readonly bootId: string;
}

/**
 * Acquires the lock of a directory until this process ends. The lock is never released: the lock of
 * a dead process is void.
 *
 * The lock file with the highest number counts. To replace a void lock, a process creates the next
 * number (`link` is atomic and fails when the name exists) and then deletes the older files. So
 * only one process can replace a given holder, and a process that read an outdated list finds a
 * higher number and gives up.
 * @param predecessor - Id of a running process that hands its lock over to this process.
 * @returns False when another running process holds the lock.
 */
export function acquireDirectoryLock(directory: string, predecessor?: number): boolean {
  const holder: LockHolder = {
    pid: process.pid,
    startToken: readStartToken(process.pid) ?? '',
    bootId: readBootId(),
  };
  const draft = path.join(directory, `lock-draft.${process.pid}`);
  writeFileSync(draft, JSON.stringify(holder), { mode: 0o600 });
  try {
    const before = findHighestLock(directory);
    const holderPid = readHolder(directory, before);
    if (holderPid !== undefined && holderPid !== predecessor) return false;
    const number = before + 1;
    try {
      linkSync(draft, path.join(directory, `lock.${number}`));
    } catch {
      return false; // another process was faster
    }
    if (findHighestLock(directory) !== number) {
      rmSync(path.join(directory, `lock.${number}`), { force: true });
      return false;
    }
    for (const older of listLockNumbers(directory))
      if (older < number) rmSync(path.join(directory, `lock.${older}`), { force: true });
    return true;
  } finally {
    rmSync(draft, { force: true });
  }
}

/**
 * Returns the id of the running process that holds the lock of a directory; undefined when no
 * process holds the lock or the directory cannot be read.
 */
export function findLockHolder(directory: string): number | undefined {
  try {
    return readHolder(directory, findHighestLock(directory));
  } catch {
    return undefined;
  }
}

function listLockNumbers(directory: string): readonly number[] {
  return readdirSync(directory).flatMap((name) => {
    const match = /^lock\.(\d{1,15})$/.exec(name);
    return match === null ? [] : [Number(match[1])];
  });
}

function findHighestLock(directory: string): number {
  return Math.max(0, ...listLockNumbers(directory));
}

/** Returns the id of the running process that holds a lock; undefined when the lock is void. */
function readHolder(directory: string, number: number): number | undefined {
  try {
    // written by acquireDirectoryLock, never partial
    const text = readFileSync(path.join(directory, `lock.${number}`), 'utf8');
    const { pid, startToken, bootId } = JSON.parse(text) as Partial<LockHolder>;
    const isValid = pid !== undefined && startToken !== undefined && bootId === readBootId();
    return isValid && isAlive(pid, startToken) ? pid : undefined;
  } catch {
    return undefined; // no lock, replaced meanwhile, or damaged by a power failure
  }
}
