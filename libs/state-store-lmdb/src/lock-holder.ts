import { CloudlessError } from '@cloudless/base';

/** The right to be the only one who uses a data directory. */
export interface DirectoryLock {
  release(): Promise<void>;
}

/** The error of a second opener. */
export function heldBy(path: string, pid: string): CloudlessError {
  return new CloudlessError(
    'unavailable',
    `data directory ${path} is in use by process ${pid}; stop it first, or name another directory`,
  );
}
