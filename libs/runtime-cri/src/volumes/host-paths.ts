import { realpath } from 'node:fs/promises';
import { CloudlessError, isPathWithin } from '@cloudless/base';
import { findMountsWithin } from './mount-table.js';

/** Paths of the machine that containers may or may not mount. */
export interface HostPathRules {
  /** Directories that containers may mount, with all their content. */
  readonly allowed: readonly string[];
  /** Paths that no container gets, neither directly nor through a parent or child directory. */
  readonly guarded: readonly string[];
}

/**
 * Paths of container runtimes: a process with access to one of them has root access to the machine.
 */
const RUNTIME_PATHS = [
  // The directory contains containerd.sock, a second socket with the same API, and one per shim.
  '/run/containerd',
  '/run/crio',
  '/run/docker.sock',
  '/run/podman',
] as const;

/** A directory or file of the machine that a container requests. */
export interface HostPathRequest {
  /** Name of the volume, for messages. */
  readonly name: string;
  readonly path: string;
  readonly readOnly: boolean;
}

/**
 * Resolves the symbolic links of a path and checks that a container may mount the path.
 * @returns The real path. Mount this path, so that the mounted path is the checked path.
 * @throws kind `invalid` for a path that is not absolute, `precondition` for a path that does not
 *   exist or may not be mounted. The message names the volume and a remedy.
 */
export async function resolveHostPath(
  { name, path, readOnly }: HostPathRequest,
  rules: HostPathRules,
): Promise<string> {
  const createError = (message: string): CloudlessError =>
    new CloudlessError('precondition', `volumes.${name}: ${message}`);
  if (!path.startsWith('/') || path.includes('\0')) {
    throw new CloudlessError(
      'invalid',
      `volumes.${name}: ${JSON.stringify(path)} must be an absolute path`,
    );
  }
  const real = await resolveRealPath(path);
  if (real === undefined) throw createError(`${path} does not exist on this node: create it first`);
  const shown = real === path ? path : `${path} is a link to ${real}, which`;
  for (const guarded of [...RUNTIME_PATHS, ...rules.guarded]) {
    const guardedPath = (await resolveRealPath(guarded)) ?? guarded;
    if (isPathWithin(guardedPath, real) || isPathWithin(real, guardedPath))
      throw createError(
        `${shown} cannot be mounted in containers, because it would expose ${guardedPath}`,
      );
  }
  const allowed = await Promise.all(
    rules.allowed.map(async (directory) => (await resolveRealPath(directory)) ?? directory),
  );
  if (!allowed.some((directory) => isPathWithin(real, directory))) {
    throw createError(
      `${shown} is not below ${rules.allowed.join(' or ')}: allow it with --allow-host-path of this node's agent, or use another path`,
    );
  }
  requireNoMountsBelow(real, readOnly, createError);
  return real;
}

/**
 * Refuses a read-only path with another file system mounted below: container runtimes make only the
 * mount of the path read-only, not the mounts below.
 */
function requireNoMountsBelow(
  real: string,
  readOnly: boolean,
  createError: (message: string) => CloudlessError,
): void {
  const below = readOnly ? findMountsWithin(real).filter((place) => place !== real) : [];
  if (below.length === 0) return;
  throw createError(
    `${real} cannot be mounted read-only, because ${below[0]} is mounted below it and would stay writable: use a directory without mounts below it`,
  );
}

/** Returns the path with all symbolic links resolved; undefined when the path does not exist. */
async function resolveRealPath(path: string): Promise<string | undefined> {
  try {
    return await realpath(path);
  } catch {
    return undefined;
  }
}
