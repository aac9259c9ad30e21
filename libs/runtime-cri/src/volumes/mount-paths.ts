import { posix } from 'node:path';
import { CloudlessError, isPathWithin } from '@cloudless/base';
import type { ContainerRequest, VolumeRequest } from '@cloudless/runtime';
import type { Mount } from '../gen/runtime/v1/api_pb.js';

/**
 * A mount of a container. Mounts are private: a later mount on the machine does not appear in the
 * container, and the other way round.
 */
export interface ContainerMount extends Pick<
  Mount,
  'containerPath' | 'hostPath' | 'readonly' | 'selinuxRelabel'
> {
  /** True when `hostPath` is in a tmpfs. Default false. */
  readonly inMemory?: boolean;
  /** Directory at which the tmpfs is mounted. Default: `hostPath`. */
  readonly mountPoint?: string;
}

/**
 * Mount point of POSIX shared memory.
 * @see shm_overview(7)
 */
export const SHARED_MEMORY = '/dev/shm';

/**
 * Paths where no volume can be mounted, because the container runtime mounts something there. Below
 * `/proc` and `/sys` a volume would cover files of the kernel, so these trees are reserved, too.
 */
const RESERVED_PATHS = ['/', '/dev', '/proc', '/sys'];
const RESERVED_TREES = ['/proc', '/sys'];

/**
 * Validates the names and mount paths of volumes, and the size of shared memory.
 * @throws kind `invalid`, naming the volume or field, for an invalid or repeated name, and for a
 *   reserved or repeated mount path.
 */
export function checkMountPaths({
  volumes = [],
  shmSizeBytes,
}: Pick<ContainerRequest, 'volumes' | 'shmSizeBytes'>): void {
  if (shmSizeBytes !== undefined && !(Number.isInteger(shmSizeBytes) && shmSizeBytes >= 1)) {
    throw new CloudlessError('invalid', 'shmSizeBytes: must be 1 or more');
  }
  const names = new Set<string>();
  const mountPaths = new Set<string>(shmSizeBytes === undefined ? [] : [SHARED_MEMORY]);
  for (const { name, mountPath } of volumes) {
    const createError = (message: string): CloudlessError =>
      new CloudlessError('invalid', `volumes.${name}: ${message}`);
    if (!/^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$/.test(name))
      throw createError('the name is not a DNS label');
    if (names.has(name)) throw createError('the name is used twice');
    names.add(name);
    const normalized = normalizePath(mountPath);
    if (
      !mountPath.startsWith('/') ||
      mountPath.includes('\0') ||
      mountPath.split('/').includes('..')
    ) {
      throw createError(
        `mountPath ${JSON.stringify(mountPath)} must be an absolute path without ".."`,
      );
    }
    if (
      RESERVED_PATHS.includes(normalized) ||
      RESERVED_TREES.some((tree) => isPathWithin(normalized, tree))
    ) {
      throw createError(`nothing can be mounted at ${normalized}`);
    }
    if (mountPaths.has(normalized)) throw createError(`${normalized} is mounted twice`);
    mountPaths.add(normalized);
  }
}

/**
 * Returns the volumes in mount order, with normalized mount paths. A path below another path comes
 * later, because the mount at the upper path would cover it otherwise.
 */
export function sortForMounting(volumes: readonly VolumeRequest[]): readonly VolumeRequest[] {
  return volumes
    .map((volume) => ({ ...volume, mountPath: normalizePath(volume.mountPath) }))
    .sort((a, b) => a.mountPath.split('/').length - b.mountPath.split('/').length);
}

/** Normalizes an absolute path: without `.`, `..`, repeated slashes and a trailing slash. */
export function normalizePath(text: string): string {
  return posix
    .normalize(text)
    .replace(/(?<=.)\/$/, '')
    .replace(/^\/\//, '/');
}
