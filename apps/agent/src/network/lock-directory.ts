import { lstatSync, mkdirSync, readlinkSync, type Stats } from 'node:fs';
import { join } from 'node:path';
import { CloudlessError, errorCodeOf } from '@cloudless/base';

/** Permissions that let another user than the owner change a directory. */
const WRITABLE_BY_OTHERS = 0o022;

/** User whose lock it is, and the directories below which the directory of the lock may be. */
export interface LockPlace {
  readonly uid: number;
  /** Directory for the files of running programs of root. Default: `/run`. */
  readonly runDirectory?: string;
  /** Directory for temporary files. Default: `/tmp`. */
  readonly temporaryDirectory?: string;
}

/**
 * Creates the directory of the lock of a network namespace, if needed: `/run/cloudless` for root,
 * otherwise `cloudless` in the runtime directory of the user (`/run/user/<uid>`), or
 * `/tmp/cloudless-<uid>` without one.
 * @throws kind `precondition` when the directory belongs to another user, or others may write there.
 */
export function prepareLockDirectory({
  uid,
  runDirectory = '/run',
  temporaryDirectory = '/tmp',
}: LockPlace): string {
  const ofUser = join(runDirectory, 'user', String(uid));
  const directory =
    uid === 0
      ? join(runDirectory, 'cloudless')
      : isPrivate(lstatSync(ofUser, { throwIfNoEntry: false }), uid)
        ? join(ofUser, 'cloudless')
        : join(temporaryDirectory, `cloudless-${uid}`);
  try {
    mkdirSync(directory, { mode: 0o700 });
  } catch (reason) {
    if (errorCodeOf(reason) !== 'EEXIST') throw reason;
  }
  const found = lstatSync(directory);
  if (isPrivate(found, uid)) return directory;
  throw new CloudlessError(
    'precondition',
    `${directory} must be a directory of user ${uid} that no other user may write, and ${describe(found)}; ` +
      `check who has made the directory, then remove it`,
  );
}

/** Returns the name of the network namespace of this process, such as `net-4026531840`. */
export function readNamespaceName(): string {
  return readlinkSync('/proc/self/ns/net').replace(/\W+/g, '-').replace(/-$/, '');
}

function isPrivate(found: Stats | undefined, uid: number): boolean {
  return found?.isDirectory() === true && found.uid === uid && !(found.mode & WRITABLE_BY_OTHERS);
}

function describe(found: Stats): string {
  if (!found.isDirectory()) return `is no directory (owner: user ${found.uid})`;
  return `belongs to user ${found.uid} with mode ${(found.mode & 0o7777).toString(8).padStart(4, '0')}`;
}
