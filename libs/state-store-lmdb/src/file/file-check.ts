import { StorageFault } from '@cloudless/state-store';
import { getFileIdentity } from './file-identity.js';
import type { DirectoryLock } from './lock-holder.js';

/**
 * Creates a check that a file is still at its path and that the lock is held. Call this before the
 * file is opened: the file system does not reuse the inode number of an open file.
 * @returns The check. It takes two calls of stat(2), some microseconds, and is synchronous, so that
 *   nothing happens between the check and an acknowledgement.
 */
export function createFileCheck(
  file: string,
  lock: Pick<DirectoryLock, 'isHeld'>,
): () => StorageFault | undefined {
  const opened = getFileIdentity(file);
  return () => {
    const found = getFileIdentity(file);
    if (found !== opened && found !== 'unknown') return createDataFileFault(file, found);
    if (!lock.isHeld()) return createLockFault(file);
    return undefined;
  };
}

function createDataFileFault(file: string, found: string | undefined): StorageFault {
  const how =
    found === undefined ? 'the file was deleted or moved' : 'another file is in its place';
  return new StorageFault(
    'dataFile',
    `${file} is no longer the file that this process has open: ${how}; writes are refused, and the data that this process still reads may ` +
      'exist nowhere else',
  );
}

function createLockFault(file: string): StorageFault {
  return new StorageFault(
    'lock',
    `the lock beside ${file} was deleted or taken by another process, which may have opened the file; writes are refused`,
  );
}
