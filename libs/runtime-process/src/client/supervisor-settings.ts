import { chmodSync, statSync } from 'node:fs';
import path from 'node:path';
import { CloudlessError } from '@cloudless/base';
import { makeDirectorySync } from '@cloudless/app-kit';
import type { ProcessRuntimeOptions } from '../process-runtime-options.js';
import { DEFAULT_LOG_SETTINGS, type SupervisorSettings } from '../wire/messages.js';

const DEFAULT_PATH = '/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin';

/**
 * Validates the options of a process runtime and fills the defaults.
 * @throws kind `invalid` for a relative directory, ports out of order, or too few or empty log files.
 */
export function toSupervisorSettings(options: ProcessRuntimeOptions): SupervisorSettings {
  const {
    portRange = { from: 20_000, to: 29_999 },
    logFiles = DEFAULT_LOG_SETTINGS.logFiles,
    logFileBytes = DEFAULT_LOG_SETTINGS.logFileBytes,
  } = options;
  if (!path.isAbsolute(options.directory))
    throw new CloudlessError('invalid', 'directory: must be an absolute path');
  const { from, to } = portRange;
  if (!(
    Number.isInteger(from) &&
    Number.isInteger(to) &&
    1 <= from &&
    from <= to &&
    to <= 65_535
  )) {
    throw new CloudlessError('invalid', 'portRange: must be two ports in order');
  }
  if (!(logFiles >= 2 && logFileBytes >= 1))
    throw new CloudlessError('invalid', 'logFiles: must be 2 or more, of 1 byte or more');
  return {
    portRange,
    address: options.address ?? '127.0.0.1',
    path: options.path ?? DEFAULT_PATH,
    logFiles,
    logFileBytes,
  };
}

/**
 * Creates the directory of a process runtime with mode 0700 when it does not exist.
 * @throws kind `precondition` when other users can access the directory.
 */
export function ensurePrivateDirectory(directory: string): void {
  if (makeDirectorySync(directory, 0o700) !== undefined) chmodSync(directory, 0o700);
  if ((statSync(directory).mode & 0o077) !== 0) {
    throw new CloudlessError(
      'precondition',
      `directory ${directory} is accessible to other users: make it private (chmod 700)`,
    );
  }
}
