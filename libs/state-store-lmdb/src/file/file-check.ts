import { StorageFault } from '@cloudless/state-store';
import { getFileIdentity } from './file-identity.js';
import type { DirectoryLock } from './lock-holder.js';

/**
 * Creates a check that the data file which LMDB has open is still at its path, and that the lock is
 * held. Call this function before LMDB opens the file: a file that takes its place in between then
 * has another identity and fails the check. While LMDB has the file open, no other file gets its
 * inode number.
 * @returns The check, which returns the fault, or undefined while there is none. The check makes
 *   two calls of stat(2), which take some microseconds, and is synchronous, so that no other code
 *   runs between the check and an acknowledgement.
 */
export function createFileCheck(
  file: string,
  lock: Pick<DirectoryLock, 'isHeld'>,
): () => StorageFault | undefined {
  const openedIdentity = getFileIdentity(file);
  return () => {
    const identity = getFileIdentity(file);
    // `unknown`: the file system reports an error. If the disk fails, the next write fails, too.
    if (identity !== openedIdentity && identity !== 'unknown')
      return createDataFileFault(file, identity);
    if (!lock.isHeld()) return createLockFault(file);
    return undefined;
  };
}

/** @param identity - Identity of the file now at the path; undefined when there is no file. */
function createDataFileFault(file: string, identity: string | undefined): StorageFault {
  const change =
    identity === undefined ? 'the file was deleted or moved' : 'another file is in its place';
  return new StorageFault(
    'dataFile',
    `${file} is no longer the file that this process has open: ${change}; writes are refused, and the data that this process still reads may ` +
      'exist nowhere else',
  );
}

function createLockFault(file: string): StorageFault {
  return new StorageFault(
    'lock',
    `the lock beside ${file} was deleted or taken by another process, which may have opened the file; writes are refused`,
  );
}
