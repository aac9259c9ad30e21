import { CloudlessError } from '@cloudless/base';

/** Exclusive use of a data directory. */
export interface DirectoryLock {
  release(): Promise<void>;
  /** False once the lock was deleted or taken by another process. Costs one system call. */
  isHeld(): boolean;
}

/**
 * Creates the error for a second process that opens a directory.
 * @param holder - Process id of the holder, with the host name if that differs.
 */
export function createHeldError(path: string, holder: string): CloudlessError {
  return new CloudlessError(
    'unavailable',
    `data directory ${path} is in use by process ${holder}; stop it first, or choose another directory`,
  );
}
