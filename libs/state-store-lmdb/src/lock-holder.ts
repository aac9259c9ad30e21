import { CloudlessError } from '@cloudless/base';

/** The right to be the only one who uses a data directory. */
export interface DirectoryLock {
  release(): Promise<void>;
  /** False once the lock was deleted, or another process has taken it all the same. One look at the file system. */
  isHeld(): boolean;
}

/** The error of a second opener. @param holder - A process id, if need be with the host's name. */
export function heldBy(path: string, holder: string): CloudlessError {
  return new CloudlessError(
    'unavailable',
    `data directory ${path} is in use by process ${holder}; stop it first, or name another directory`,
  );
}
