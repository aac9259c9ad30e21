import { linkSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { isAlive, readBootId, startTokenOf } from './process-identity.js';

/** Who holds the lock; a holder that is gone, or of an earlier boot, holds nothing. */
interface Holder {
  readonly pid: number;
  readonly startToken: string;
  readonly bootId: string;
}

/**
 * Takes the lock of a directory for this process, until it ends. Nothing is released: a dead
 * holder's lock is void.
 *
 * The lock with the highest number counts. To take over a void one, a process makes the next number
 * (`link` is atomic and fails when the name exists), and only then deletes older ones. So no two
 * can take over from the same holder, and one that was slow to look finds a higher number and gives
 * up.
 * @returns False when another process that lives holds it.
 */
export function acquireDirectoryLock(directory: string): boolean {
  const mine: Holder = {
    pid: process.pid,
    startToken: startTokenOf(process.pid) ?? '',
    bootId: readBootId(),
  };
  const draft = path.join(directory, `lock-draft.${process.pid}`);
  writeFileSync(draft, JSON.stringify(mine), { mode: 0o600 });
  try {
    const before = highestLock(directory);
    if (before > 0 && isHeld(path.join(directory, `lock.${before}`))) return false;
    const number = before + 1;
    try {
      linkSync(draft, path.join(directory, `lock.${number}`));
    } catch {
      return false; // another was faster
    }
    if (highestLock(directory) !== number) {
      rmSync(path.join(directory, `lock.${number}`), { force: true });
      return false;
    }
    for (const older of lockNumbers(directory))
      if (older < number) rmSync(path.join(directory, `lock.${older}`), { force: true });
    return true;
  } finally {
    rmSync(draft, { force: true });
  }
}

function lockNumbers(directory: string): readonly number[] {
  return readdirSync(directory).flatMap((name) => {
    const match = /^lock\.(\d{1,15})$/.exec(name);
    return match === null ? [] : [Number(match[1])];
  });
}

function highestLock(directory: string): number {
  return Math.max(0, ...lockNumbers(directory));
}

function isHeld(file: string): boolean {
  try {
    // written by acquireDirectoryLock, whole
    const holder = JSON.parse(readFileSync(file, 'utf8')) as Partial<Holder>;
    const { pid, startToken, bootId } = holder;
    return (
      pid !== undefined &&
      startToken !== undefined &&
      bootId === readBootId() &&
      isAlive(pid, startToken)
    );
  } catch {
    return false; // taken over meanwhile, or damaged by a power failure: the number decides
  }
}
