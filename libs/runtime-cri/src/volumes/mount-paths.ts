import { posix } from 'node:path';
import { CloudlessError } from '@cloudless/base';
import type { ContainerRequest, VolumeRequest } from '@cloudless/runtime';
import type { Mount } from '../gen/runtime/v1/api_pb.js';

/**
 * A mount of a container. Mounts are private: mounts that are made later on one side do not appear
 * on the other.
 */
export interface ContainerMount extends Pick<
  Mount,
  'containerPath' | 'hostPath' | 'readonly' | 'selinuxRelabel'
> {
  /** Whether a tmpfs is mounted at `hostPath`. */
  readonly inMemory?: boolean;
}

/** Mount point of POSIX shared memory. @see shm_overview(7) */
export const SHARED_MEMORY = '/dev/shm';

/**
 * Paths that the runtime itself mounts. Nothing of the kernel below `/proc` and `/sys` may be
 * covered.
 */
const RESERVED_PATHS = ['/', '/dev', '/proc', '/sys'];
const RESERVED_TREES = ['/proc', '/sys'];

/**
 * Checks names and mount paths of the volumes.
 * @throws kind `invalid`, naming the volume, for a path that cannot be mounted, and for a repeated
 *   name or path.
 */
export function checkMountPaths({
  volumes = [],
  shmSizeBytes,
}: Pick<ContainerRequest, 'volumes' | 'shmSizeBytes'>): void {
  if (shmSizeBytes !== undefined && !(Number.isInteger(shmSizeBytes) && shmSizeBytes >= 1)) {
    throw new CloudlessError('invalid', 'shmSizeBytes: must be 1 or more');
  }
  const names = new Set<string>();
  const places = new Set<string>(shmSizeBytes === undefined ? [] : [SHARED_MEMORY]);
  for (const { name, mountPath } of volumes) {
    const createError = (message: string): CloudlessError =>
      new CloudlessError('invalid', `volumes.${name}: ${message}`);
    if (!/^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$/.test(name))
      throw createError('the name is not a DNS label');
    if (names.has(name)) throw createError('the name is used twice');
    names.add(name);
    const place = normalizePath(mountPath);
    if (
      !mountPath.startsWith('/') ||
      mountPath.includes('\0') ||
      mountPath.split('/').includes('..')
    ) {
      throw createError(
        `mountPath ${JSON.stringify(mountPath)} must be an absolute path without ".."`,
      );
    }
    if (RESERVED_PATHS.includes(place) || RESERVED_TREES.some((taken) => isWithin(place, taken))) {
      throw createError(`nothing can be mounted at ${place}`);
    }
    if (places.has(place)) throw createError(`${place} is mounted twice`);
    places.add(place);
  }
}

/**
 * Returns the volumes in mount order: a path below another path comes later, because it would be
 * covered otherwise.
 */
export function sortForMounting(volumes: readonly VolumeRequest[]): readonly VolumeRequest[] {
  return volumes
    .map((volume) => ({ ...volume, mountPath: normalizePath(volume.mountPath) }))
    .sort((a, b) => a.mountPath.split('/').length - b.mountPath.split('/').length);
}

/** Whether a path is this directory or below it. Both must be normalized. */
export function isWithin(place: string, directory: string): boolean {
  return directory === '/' || place === directory || place.startsWith(`${directory}/`);
}

/** Normalizes a path and removes trailing slashes. */
export function normalizePath(text: string): string {
  return posix
    .normalize(text)
    .replace(/(?<=.)\/$/, '')
    .replace(/^\/\//, '/');
}
