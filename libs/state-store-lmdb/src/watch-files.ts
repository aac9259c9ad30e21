import { StorageFault } from '@cloudless/state-store';
import { identityOf } from './file-identity.js';
import type { DirectoryLock } from './lock-holder.js';

/**
 * Remembers device and inode of a file. Call this before the file is opened: the inode number of an
 * open file is not given to another file.
 * @returns Checks that the file is still at its path and the lock is held. Takes two calls of
 *   stat(2), some microseconds; synchronous, so that nothing comes between the check and the
 *   acknowledgement.
 */
export function watchFiles(
  file: string,
  lock: Pick<DirectoryLock, 'isHeld'>,
): () => StorageFault | undefined {
  const opened = identityOf(file);
  return () => {
    const found = identityOf(file);
    if (found !== opened && found !== 'unknown') return dataFileLost(file, found);
    if (!lock.isHeld()) return lockLost(file);
    return undefined;
  };
}

function dataFileLost(file: string, found: string | undefined): StorageFault {
  const how = found === undefined ? 'it was deleted or moved' : 'another file is in its place';
  return new StorageFault(
    'dataFile',
    `${file} is no longer the file that this process has open: ${how}; writes are refused, and what is still read here may ` +
      'exist nowhere else',
  );
}

function lockLost(file: string): StorageFault {
  return new StorageFault(
    'lock',
    `the lock beside ${file} was deleted or taken by another process, which may have opened the file; writes are refused`,
  );
}
