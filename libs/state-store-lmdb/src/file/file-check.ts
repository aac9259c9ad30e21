import { StorageFault } from '@cloudless/state-store';
import { getFileIdentity } from './file-identity.js';
import type { DirectoryLock } from './lock-holder.js';

/**
 * Creates a check that a file is still at its path and that the lock is held. Must run before LMDB
 * opens the file: the file system does not reuse the inode number of an open file.
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
