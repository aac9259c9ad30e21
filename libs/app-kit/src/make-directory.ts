import { mkdirSync, statSync } from 'node:fs';
import { mkdir, stat } from 'node:fs/promises';
import { dirname, resolve } from 'node:path';
import { errorCodeOf } from '@cloudless/base';

/** Default of mkdir in Node.js; the umask removes bits. */
const DEFAULT_MODE = 0o777;

/**
 * Creates a directory and its missing parents, like `mkdir -p`.
 *
 * The recursive mkdir of Node 20 takes each ENOENT for a missing parent and never returns on file
 * systems that answer ENOENT for another reason: /proc, autofs, some FUSE file systems. This
 * function tries each path at most twice.
 * @param mode - Mode of each new directory, before the umask. Default 0o777.
 * @returns The first directory that was created; undefined when the directory existed.
 * @throws The error of mkdir(2), with its `code`: `EEXIST` when the path is not a directory,
 *   `ENOENT` when the file system creates no directories there.
 */
export async function makeDirectory(
  path: string,
  mode = DEFAULT_MODE,
): Promise<string | undefined> {
  const target = resolve(path);
  const tryCreate = (): Promise<unknown> =>
    mkdir(target, { mode }).then(
      () => undefined,
      (reason: unknown) => reason,
    );
  let failure = await tryCreate();
  if (failure === undefined) return target;
  let firstCreated: string | undefined;
  if (mayLackParent(failure, target)) {
    firstCreated = await makeDirectory(dirname(target), mode);
    failure = await tryCreate();
    if (failure === undefined) return firstCreated ?? target;
  }
  const stats = await stat(target).catch(() => undefined);
  if (stats?.isDirectory() !== true) throw failure;
  return firstCreated;
}

/** {@link makeDirectory} in one synchronous call. */
export function makeDirectorySync(path: string, mode = DEFAULT_MODE): string | undefined {
  const target = resolve(path);
  const tryCreate = (): unknown => {
    try {
      mkdirSync(target, { mode });
      return undefined;
    } catch (reason) {
      return reason;
    }
  };
  let failure = tryCreate();
  if (failure === undefined) return target;
  let firstCreated: string | undefined;
  if (mayLackParent(failure, target)) {
    firstCreated = makeDirectorySync(dirname(target), mode);
    failure = tryCreate();
    if (failure === undefined) return firstCreated ?? target;
  }
  if (statSync(target, { throwIfNoEntry: false })?.isDirectory() !== true) throw failure;
  return firstCreated;
}

/** Returns true when the error may mean that a parent of `target` is missing. */
function mayLackParent(failure: unknown, target: string): boolean {
  return errorCodeOf(failure) === 'ENOENT' && dirname(target) !== target;
}
