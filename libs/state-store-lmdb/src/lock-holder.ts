import { CloudlessError } from '@cloudless/base';

/** The right to be the only one who uses a data directory. */
export interface DirectoryLock {
  release(): Promise<void>;
  /**
   * False once the lock was deleted or taken by another process. Costs one call of the file system.
   */
  isHeld(): boolean;
}

/**
 * The error of a second process that opens a directory.
 * @param holder - The process id of the first, with the host's name when that is another.
 */
export function heldBy(path: string, holder: string): CloudlessError {
  return new CloudlessError(
    'unavailable',
    `data directory ${path} is in use by process ${holder}; stop it first, or name another directory`,
  );
}
