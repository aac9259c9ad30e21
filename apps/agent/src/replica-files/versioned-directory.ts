import {
  chmod,
  chown,
  mkdir,
  readdir,
  readlink,
  rename,
  rm,
  symlink,
  utimes,
  writeFile,
} from 'node:fs/promises';
import { join } from 'node:path';
import { CloudlessError, errorCodeOf, errorMessageOf } from '@cloudless/base';

/** Symbolic link to the folder with the current files. */
export const CURRENT = '..data';
/** Prefix of the folders with files. */
const VERSION_PREFIX = '..version-';

/** A file of a version. */
export interface VersionFile {
  readonly name: string;
  readonly content: string | Uint8Array;
  /** Time of the content, milliseconds since the Unix epoch. Default: now. */
  readonly modifiedAtMs?: number;
}

/** How a version is written. */
export interface VersionOptions {
  /** Sets owner and permissions of a file, or of the folder with the files. */
  readonly permit: (path: string, kind: 'file' | 'folder') => Promise<void>;
  /** Kind of the files, for the message of an error. */
  readonly what: string;
  /** Suffix of the name of the folder. Default: none. */
  readonly revision?: string;
}

/**
 * Replaces all files of a directory at the same time, also as a container sees them: each file is a
 * symbolic link to `..data/…`, and `..data` is a link to a folder with all files. A change writes a
 * new folder and replaces the one link `..data`. The previous folder stays until the next change,
 * for readers that have resolved `..data`.
 * @throws kind `exhausted` when there is no space, `precondition` for other failures.
 */
export async function replaceFiles(
  path: string,
  files: readonly VersionFile[],
  options: VersionOptions,
): Promise<void> {
  try {
    const previous = await readlink(join(path, CURRENT)).catch(() => undefined);
    const version = await createVersion(path, files, options);
    await replaceLink(join(path, CURRENT), version);
    const names = new Set(files.map(({ name }) => name));
    for (const name of names)
      await symlink(join(CURRENT, name), join(path, name)).catch(ignoreCode('EEXIST'));
    for (const name of await readdir(path)) {
      const isKept = name.startsWith(VERSION_PREFIX)
        ? name === version || name === previous
        : name === CURRENT || names.has(name);
      if (!isKept) await rm(join(path, name), { recursive: true, force: true });
    }
  } catch (reason) {
    const kind = errorCodeOf(reason) === 'ENOSPC' ? 'exhausted' : 'precondition';
    const message = `${options.what} cannot be written to ${path}: ${errorMessageOf(reason)}`;
    throw new CloudlessError(kind, message, { cause: reason });
  }
}

/** Returns the revision of the current files; undefined when there are none. */
export async function readRevision(path: string): Promise<string | undefined> {
  const version = await readlink(join(path, CURRENT)).catch(() => undefined);
  return version === undefined ? undefined : /^\.\.version-\d+-(.+)$/.exec(version)?.[1];
}

/** Returns a handler that ignores errors with a code of the operating system. */
export function ignoreCode(code: string): (reason: unknown) => undefined {
  return (reason) => {
    if (errorCodeOf(reason) !== code) throw reason;
    return undefined;
  };
}

/** Writes the files to a new folder and returns its name. */
async function createVersion(
  path: string,
  files: readonly VersionFile[],
  { permit, revision }: VersionOptions,
): Promise<string> {
  const numbers = (await readdir(path))
    .filter((name) => name.startsWith(VERSION_PREFIX))
    .map((name) => Number.parseInt(name.slice(VERSION_PREFIX.length), 10));
  const suffix = revision === undefined ? '' : `-${revision}`;
  const version = `${VERSION_PREFIX}${Math.max(0, ...numbers) + 1}${suffix}`;
  const folder = join(path, version);
  await mkdir(folder, { mode: 0o700 });
  for (const { name, content, modifiedAtMs } of files) {
    const file = join(folder, name);
    await writeFile(file, content, { mode: 0o400, flag: 'wx' });
    await permit(file, 'file');
    if (modifiedAtMs !== undefined) await utimes(file, modifiedAtMs / 1_000, modifiedAtMs / 1_000);
  }
  await permit(folder, 'folder');
  return version;
}

async function replaceLink(link: string, target: string): Promise<void> {
  const draft = `${link}.draft`;
  await rm(draft, { force: true });
  await symlink(target, draft);
  await rename(draft, link);
}

/** Sets permissions, then the owner where this process may do so. */
export async function setOwnership(
  path: string,
  mode: number,
  owner: { readonly userId: number; readonly groupId: number } | undefined,
): Promise<void> {
  await chmod(path, mode);
  if (owner !== undefined && process.getuid?.() === 0)
    await chown(path, owner.userId, owner.groupId);
}
