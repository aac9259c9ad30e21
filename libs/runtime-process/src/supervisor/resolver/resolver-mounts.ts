import { chmodSync, readFileSync, realpathSync, statSync, writeFileSync } from 'node:fs';
import { hostname } from 'node:os';
import path from 'node:path';
import { CloudlessError } from '@cloudless/base';
import { makeDirectorySync } from '@cloudless/app-kit';
import type { BindMount } from './own-mounts.js';
import { toResolverText, type DnsSettings } from './resolver-text.js';

/** Where the resolver of the machine is configured. */
export interface ResolverPaths {
  /** The file that the C library reads. It may be a symbolic link. */
  readonly file: string;
  /** Directory of systemd-resolved, with its resolv.conf files and its socket for `nss-resolve`. */
  readonly resolvedDirectory: string;
}

/** Paths of the machine. */
export const RESOLVER_PATHS: ResolverPaths = {
  file: '/etc/resolv.conf',
  resolvedDirectory: '/run/systemd/resolve',
};

const FILE_NAME = 'resolv.conf';
/**
 * Names of the files of one process: those of systemd-resolved that a resolv.conf may be a symbolic
 * link to.
 */
export const RESOLVED_NAMES = [FILE_NAME, 'stub-resolv.conf'];

/**
 * Writes the resolv.conf of one process.
 * @param directory - Created for the files; the process sees it where systemd-resolved is.
 * @throws errors of the file system as they are.
 */
export function writeResolverFiles(
  directory: string,
  settings: DnsSettings,
  paths: ResolverPaths,
): void {
  const text = toResolverText(settings, { text: readFile(paths.file), hostname: hostname() });
  makeDirectorySync(directory, 0o755);
  // Readable for a process that has changed its user, whatever the file mode mask of this process.
  chmodSync(directory, 0o755);
  for (const name of RESOLVED_NAMES) {
    const file = path.join(directory, name);
    writeFileSync(file, text);
    chmodSync(file, 0o644);
  }
}

/**
 * Plans the mounts by which a process reads its own resolv.conf. With systemd-resolved, its whole
 * directory is replaced: without its socket, `nss-resolve` leaves the question to the next service
 * of nsswitch.conf, which is DNS.
 * @param directory - Of {@link writeResolverFiles}.
 * @throws kind `precondition` when the machine has no resolv.conf to mount the file at.
 */
export function planResolverMounts(directory: string, paths: ResolverPaths): readonly BindMount[] {
  const { file, resolvedDirectory } = paths;
  const target = findRealPath(file);
  if (target === undefined)
    throw new CloudlessError('precondition', `${file} does not exist on this machine: create it`);
  const resolved = findRealPath(resolvedDirectory);
  const isInside =
    path.dirname(target) === resolved && RESOLVED_NAMES.includes(path.basename(target));
  return [
    ...(resolved === undefined ? [] : [{ source: directory, target: resolved }]),
    ...(isInside ? [] : [{ source: path.join(directory, FILE_NAME), target }]),
  ];
}

/**
 * Returns a text that differs when the resolv.conf of the machine has become another file. The
 * kernel then removes the mounts at the former file, in every mount namespace. Empty when there is
 * none, or its symbolic link leads nowhere.
 * @see mount_namespaces(7), about rename(2) and unlink(2) of mount points
 */
export function identifyResolverFile({ file }: ResolverPaths): string {
  try {
    const { dev, ino, ctimeMs } = statSync(file);
    return `${dev}:${ino}:${ctimeMs}`;
  } catch {
    return '';
  }
}

function readFile(file: string): string {
  try {
    return readFileSync(file, 'utf8');
  } catch {
    return ''; // planResolverMounts reports a missing file
  }
}

function findRealPath(file: string): string | undefined {
  try {
    return realpathSync(file);
  } catch {
    return undefined;
  }
}
