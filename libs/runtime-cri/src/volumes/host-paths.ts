import { realpath } from 'node:fs/promises';
import { CloudlessError } from '@cloudless/base';
import { isWithin } from './mount-paths.js';
import { mountsWithin } from './mount-table.js';

/** What containers may have of the machine. */
export interface HostPathRules {
  /** Directories that they may have, with all that is below. */
  readonly allowed: readonly string[];
  /** Paths that they never get, neither by a directory above nor below. */
  readonly guarded: readonly string[];
}

/** Who reaches one of these is root of the machine. */
const RUNTIME_PLACES = [
  '/run/containerd', // beside containerd.sock: a second socket for all of it, and one of each shim
  '/run/crio',
  '/run/docker.sock',
  '/run/podman',
] as const;

/** A directory or file of the machine that a container asks for. */
export interface HostPathRequest {
  /** The volume's name, for messages. */
  readonly name: string;
  readonly path: string;
  readonly readOnly: boolean;
}

/**
 * Where the path really is, if a container may have it. The real path is what is to be mounted, so
 * that it is what was checked.
 * @throws kind `invalid` or `precondition`, naming the volume, with what to do.
 */
export async function resolveHostPath(
  { name, path, readOnly }: HostPathRequest,
  rules: HostPathRules,
): Promise<string> {
  const refused = (message: string): CloudlessError =>
    new CloudlessError('precondition', `volumes.${name}: ${message}`);
  if (!path.startsWith('/') || path.includes('\0')) {
    throw new CloudlessError(
      'invalid',
      `volumes.${name}: ${JSON.stringify(path)} must be an absolute path`,
    );
  }
  const real = await realOf(path);
  if (real === undefined) throw refused(`${path} is not on this node: make it there first`);
  const shown = real === path ? path : `${path} leads to ${real}, which`;
  for (const guarded of [...RUNTIME_PLACES, ...rules.guarded]) {
    const at = (await realOf(guarded)) ?? guarded;
    if (isWithin(at, real) || isWithin(real, at))
      throw refused(`${shown} is never given to containers, because of ${at}`);
  }
  const allowed = await Promise.all(
    rules.allowed.map(async (directory) => (await realOf(directory)) ?? directory),
  );
  if (!allowed.some((directory) => isWithin(real, directory))) {
    throw refused(
      `${shown} is not below ${rules.allowed.join(' or ')}: allow it with --allow-host-path of this node's agent, or take another`,
    );
  }
  checkReadOnly(real, readOnly, refused);
  return real;
}

/** Runtimes make only the mount itself read-only, not what is mounted below. */
function checkReadOnly(
  real: string,
  readOnly: boolean,
  refused: (message: string) => CloudlessError,
): void {
  const below = readOnly ? mountsWithin(real).filter((place) => place !== real) : [];
  if (below.length === 0) return;
  throw refused(
    `${real} cannot be read-only as a whole, as ${below[0]} is mounted below it: ask for a directory without one`,
  );
}

/** Undefined for what is not there. */
async function realOf(path: string): Promise<string | undefined> {
  try {
    return await realpath(path);
  } catch {
    return undefined;
  }
}
