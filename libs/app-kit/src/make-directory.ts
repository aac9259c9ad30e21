import { mkdirSync, statSync } from 'node:fs';
import { mkdir, stat } from 'node:fs/promises';
import { dirname, resolve } from 'node:path';

/** Node's own default. */
const DEFAULT_MODE = 0o777;

/**
 * Creates a directory and its missing parents, like `mkdir -p`.
 *
 * Node 20's own recursive mkdir takes each ENOENT for a missing parent and never returns on file
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
  let refusal = await tryCreate();
  if (refusal === undefined) return target;
  let first: string | undefined;
  if (mayLackParent(refusal, target)) {
    first = await makeDirectory(dirname(target), mode);
    refusal = await tryCreate();
    if (refusal === undefined) return first ?? target;
  }
  const found = await stat(target).catch(() => undefined);
  if (found?.isDirectory() !== true) throw refusal;
  return first;
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
  let refusal = tryCreate();
  if (refusal === undefined) return target;
  let first: string | undefined;
  if (mayLackParent(refusal, target)) {
    first = makeDirectorySync(dirname(target), mode);
    refusal = tryCreate();
    if (refusal === undefined) return first ?? target;
  }
  if (statSync(target, { throwIfNoEntry: false })?.isDirectory() !== true) throw refusal;
  return first;
}

function mayLackParent(refusal: unknown, target: string): boolean {
  return (refusal as NodeJS.ErrnoException).code === 'ENOENT' && dirname(target) !== target;
}
