import { existsSync } from 'node:fs';
import { chmod, chown, mkdir, readdir, stat, utimes } from 'node:fs/promises';
import path from 'node:path';
import {
  CloudlessError,
  definedFields,
  errorCodeOf,
  errorMessageOf,
  isPathWithin,
} from '@cloudless/base';
import type { ContainerRequest, VolumeRequest } from '@cloudless/runtime';
import { makeDirectory } from '@cloudless/app-kit';
import { toVolumeGroup } from '../containers/labels.js';
import { resolveHostPath, type HostPathRules } from './host-paths.js';
import { makeDirectoriesBelow } from './make-directories-below.js';
import { mountMemory, unmountMemory } from './memory-mounts.js';
import { sortForMounting, SHARED_MEMORY, type ContainerMount } from './mount-paths.js';
import { removeTree } from './remove-tree.js';

/**
 * Mode of volumes: any user of a container may write, as in Kubernetes. Users of the machine cannot
 * enter the parent directory, which has {@link PARENT_MODE}.
 */
const VOLUME_MODE = 0o777;
const SET_GROUP_ID = 0o2000;
/** Mode of the directories that contain volumes: only root of the machine may enter. */
const PARENT_MODE = 0o700;
/**
 * Mode of shared memory, as in container runtimes: any user may write, and remove their own files.
 */
const SHARED_MEMORY_MODE = 0o1777;
/** Name of the directory for shared memory. No volume can have this name, which is no DNS label. */
const SHARED_MEMORY_NAME = 'dev.shm';
/** Names that are safe as one component of a path. */
const PATH_COMPONENT = /^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$/;

/** Permissions and group of a directory, whose owner is root. */
interface Ownership {
  readonly mode: number;
  readonly groupId?: number;
}

/**
 * Returns mode and group of the empty directories of a request. With `fsGroup`, new files in the
 * directory belong to that group, too.
 * @see inode(7), set-group-ID bit
 */
function toOwnership({ security }: ContainerRequest): Ownership {
  const groupId = security?.fsGroup;
  return groupId === undefined
    ? { mode: VOLUME_MODE }
    : { mode: VOLUME_MODE | SET_GROUP_ID, groupId };
}

/** Creates and removes the directories of this machine that containers mount. */
export class VolumeStore {
  constructor(
    /** Absolute path of the directory for volumes. No other program may keep files there. */
    private readonly directory: string,
    private readonly rules: HostPathRules,
    /** Returns the current wall-clock time in milliseconds. */
    private readonly wallTime: () => number,
  ) {}

  /**
   * Creates the directories and tmpfs mounts of a request that do not exist yet. Shared memory is
   * always new and empty.
   * @returns The mounts in mount order.
   * @throws kind `invalid` for an invalid group or path, `precondition` for a host path that may
   *   not be mounted or a directory that cannot be created, `exhausted` when the disk is full.
   */
  async createMounts(request: ContainerRequest): Promise<readonly ContainerMount[]> {
    const volumes = sortForMounting(request.volumes ?? []);
    const mounts: ContainerMount[] = [];
    for (const volume of volumes) mounts.push(await this.createMount(volume, request));
    if (request.shmSizeBytes !== undefined)
      mounts.push(await this.mountSharedMemory(request, request.shmSizeBytes));
    await this.makeMountPoints(mounts);
    return mounts;
  }

  /**
   * Lists the groups with empty directories.
   * @returns `usedAtMs` is the wall-clock time in milliseconds at which the last start of a
   *   container of the group requested its directories.
   */
  async listGroups(): Promise<readonly { readonly group: string; readonly usedAtMs: number }[]> {
    const found = await readdir(this.emptyRoot).catch(() => []);
    return Promise.all(
      found.map(async (group) => ({
        group,
        usedAtMs:
          (await stat(path.join(this.emptyRoot, group)).catch(() => undefined))?.mtimeMs ?? 0,
      })),
    );
  }

  /** Returns true when a group has empty directories. */
  hasGroup(group: string): boolean {
    return PATH_COMPONENT.test(group) && existsSync(path.join(this.emptyRoot, group));
  }

  /** Removes the empty directories of a group and their content. An unknown group is no error. */
  async removeGroup(group: string): Promise<void> {
    if (!PATH_COMPONENT.test(group)) return;
    const directory = path.join(this.emptyRoot, group);
    await unmountMemory(directory);
    await removeTree(directory);
  }

  private get emptyRoot(): string {
    return path.join(this.directory, 'empty');
  }

  private async createMount(
    { name, mountPath, readOnly, source }: VolumeRequest,
    request: ContainerRequest,
  ): Promise<ContainerMount> {
    const toMount = (hostPath: string, selinuxRelabel: boolean): ContainerMount => ({
      ...{ containerPath: mountPath, hostPath, readonly: readOnly, selinuxRelabel },
    });
    switch (source.kind) {
      case 'hostPath':
        return toMount(
          await resolveHostPath({ name, readOnly, path: source.path }, this.rules),
          false,
        );
      case 'emptyDir': {
        const directory = await this.makeEmptyDirectory(name, request, toOwnership(request));
        if (source.memory === undefined) return toMount(directory, true);
        const { mode, groupId } = toOwnership(request);
        await mountMemory(`volumes.${name}`, directory, { ...source.memory, mode, groupId });
        return { ...toMount(directory, true), inMemory: true };
      }
      case 'prepared':
        return {
          ...toMount(source.path, true),
          ...{ inMemory: source.inMemory, ...definedFields({ mountPoint: source.mountPoint }) },
        };
      case 'named':
        return toMount(
          await this.makeVolume(name, ['named', source.namespace, source.workload, source.name]),
          true,
        );
    }
  }

  /**
   * Mounts shared memory, which is empty for each container: the mount of the previous container is
   * removed first.
   */
  private async mountSharedMemory(
    request: ContainerRequest,
    sizeBytes: number,
  ): Promise<ContainerMount> {
    const hostPath = await this.makeEmptyDirectory(SHARED_MEMORY_NAME, request, {
      mode: VOLUME_MODE,
    });
    await unmountMemory(hostPath);
    await mountMemory('shmSizeBytes', hostPath, {
      sizeBytes,
      mode: SHARED_MEMORY_MODE,
      noExec: true,
    });
    return {
      containerPath: SHARED_MEMORY,
      hostPath,
      readonly: false,
      selinuxRelabel: true,
      inMemory: true,
    };
  }

  /** Creates an empty directory of the group, and records the use of the group. */
  private async makeEmptyDirectory(
    name: string,
    request: ContainerRequest,
    owner: Ownership,
  ): Promise<string> {
    const group = toVolumeGroup(request);
    const directory = await this.makeVolume(name, ['empty', group, name], owner);
    const usedAt = this.wallTime() / 1_000;
    await utimes(path.join(this.emptyRoot, group), usedAt, usedAt);
    return directory;
  }

  /**
   * Creates a directory below the directory for volumes. An existing directory stays as it is.
   * @param volume - Name of the volume, for messages.
   * @param components - Components of the path.
   * @returns The absolute path.
   */
  private async makeVolume(
    volume: string,
    components: readonly string[],
    owner: Ownership = { mode: VOLUME_MODE },
  ): Promise<string> {
    const invalid = components.find((component) => !PATH_COMPONENT.test(component));
    if (invalid !== undefined) {
      throw new CloudlessError(
        'invalid',
        `volumes.${volume}: ${JSON.stringify(invalid)} is not a valid name of a directory`,
      );
    }
    const directory = path.join(this.directory, ...components);
    try {
      await makeDirectory(path.dirname(directory), PARENT_MODE);
      await mkdir(directory);
      if (owner.groupId !== undefined) await chown(directory, 0, owner.groupId);
      await chmod(directory, owner.mode); // independent of the umask of this process
    } catch (reason) {
      const code = errorCodeOf(reason);
      if (code !== 'EEXIST') {
        const kind = code === 'ENOSPC' || code === 'EDQUOT' ? 'exhausted' : 'precondition';
        throw new CloudlessError(
          kind,
          `volumes.${volume}: ${directory} cannot be created: ${errorMessageOf(reason)}`,
          { cause: reason },
        );
      }
    }
    return directory;
  }

  /**
   * Creates the mount points of nested mounts inside read-only volumes, because the runtime cannot
   * create directories there.
   */
  private async makeMountPoints(mounts: readonly ContainerMount[]): Promise<void> {
    for (const [index, { containerPath }] of mounts.entries()) {
      const outer = mounts
        .slice(0, index)
        .findLast((mount) => isPathWithin(containerPath, mount.containerPath));
      if (outer === undefined || !outer.readonly || !isPathWithin(outer.hostPath, this.directory))
        continue;
      await makeDirectoriesBelow(
        outer.hostPath,
        path.posix.relative(outer.containerPath, containerPath).split('/'),
      );
    }
  }
}
