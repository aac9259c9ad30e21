import { constants } from 'node:fs';
import { access, realpath, stat } from 'node:fs/promises';
import { CloudlessError, errorMessageOf } from '@cloudless/base';
import { makeDirectory } from '@cloudless/app-kit';

/** Permission bits of group and others. */
const OTHERS_MASK = 0o077;

/** A data directory that passed all checks. */
export interface DataDirectory {
  /** Absolute path without symbolic links. */
  readonly path: string;
  /** `device:inode`: the same for every path to the directory. */
  readonly identity: string;
}

/**
 * Creates the directory with mode 0700, or checks an existing directory.
 * @throws kind `precondition` when the path is not a directory, has another owner, or other users
 *   may access the directory; `denied` when this process may not create, read or write it. The
 *   message names the path, and the remedy when there is one.
 */
export async function prepareDataDirectory(directory: string): Promise<DataDirectory> {
  await create(directory);
  const path = await realpath(directory);
  const { mode, uid, dev, ino } = await stat(path, { bigint: true });
  const permissions = Number(mode) & 0o777;
  if ((permissions & OTHERS_MASK) !== 0) {
    throw new CloudlessError(
      'precondition',
      `data directory ${path} has mode ${permissions.toString(8).padStart(4, '0')}, so that other users can access it; run: chmod 700 '${path}'`,
    );
  }
  const ownUid = process.getuid?.();
  if (ownUid !== undefined && Number(uid) !== ownUid) {
    throw new CloudlessError(
      'precondition',
      `data directory ${path} belongs to user ${uid}, not to user ${ownUid}; run: chown ${ownUid} '${path}'`,
    );
  }
  await access(path, constants.R_OK | constants.W_OK | constants.X_OK).catch((cause: unknown) => {
    throw new CloudlessError(
      'denied',
      `data directory ${path} cannot be read and written by this user; run: chmod 700 '${path}'`,
      { cause },
    );
  });
  return { path, identity: `${dev}:${ino}` };
}

async function create(directory: string): Promise<void> {
  try {
    await makeDirectory(directory, 0o700);
  } catch (cause) {
    const existing = await stat(directory).catch(() => undefined);
    if (existing !== undefined && !existing.isDirectory()) {
      throw new CloudlessError(
        'precondition',
        `${directory} is not a directory; choose a directory for the data, or move this file away`,
        {
          cause,
        },
      );
    }
    throw new CloudlessError(
      'denied',
      `data directory ${directory} cannot be created (${errorMessageOf(cause)})`,
      { cause },
    );
  }
}
