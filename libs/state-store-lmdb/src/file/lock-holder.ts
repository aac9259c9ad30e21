import { CloudlessError } from '@cloudless/base';

/** Exclusive use of a data directory. */
export interface DirectoryLock {
  /** Gives up the directory. */
  release(): Promise<void>;
  /** Returns false once the lock was deleted or another process holds it. One system call. */
  isHeld(): boolean;
}

/**
 * Creates the error for a directory that another process has locked.
 * @param holder - Process id of the holder, with the host name if the host is another.
 */
export function createHeldError(path: string, holder: string): CloudlessError {
  return new CloudlessError(
    'unavailable',
    `data directory ${path} is in use by process ${holder}; stop it first, or choose another directory`,
  );
}
