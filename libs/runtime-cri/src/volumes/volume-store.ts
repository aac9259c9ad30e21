import { existsSync } from 'node:fs';
import { chmod, chown, mkdir, readdir, stat, utimes } from 'node:fs/promises';
import path from 'node:path';
import { CloudlessError, errorMessageOf } from '@cloudless/base';
import type { ContainerRequest, VolumeRequest } from '@cloudless/runtime';
import { makeDirectory } from '@cloudless/app-kit';
import { toVolumeGroup } from '../containers/labels.js';
import { resolveHostPath, type HostPathRules } from './host-paths.js';
import { makeDirectoriesBelow } from './make-directories-below.js';
import { mountMemory, unmountMemory } from './memory-mounts.js';
import { sortForMounting, isWithin, SHARED_MEMORY, type ContainerMount } from './mount-paths.js';
import { removeTree } from './remove-tree.js';

/**
 * Mode of volumes: any user of a container may write, as in Kubernetes. Users of the machine cannot
 * enter the parent directory.
 */
const VOLUME_MODE = 0o777;
const SET_GROUP_ID = 0o2000;
const OWN_MODE = 0o700;
/** Mode of shared memory, as in container runtimes: any user may write, and remove own files. */
const SHARED_MEMORY_MODE = 0o1777;
/** Name of the directory for shared memory; no volume can have this name. */
const SHARED_MEMORY_NAME = 'dev.shm';
/** Names that are safe as one component of a path. */
const PATH_COMPONENT = /^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$/;

/** Permissions and group of a directory, whose owner is root. */
interface Ownership {
  readonly mode: number;
  readonly groupId?: number;
}

/**
 * Returns mode and group of the volumes of a request. With a group, new files in the directory
 * belong to that group, too.
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
    /** Absolute path; no other program may keep files there. */
    private readonly directory: string,
    private readonly rules: HostPathRules,
    /** Wall-clock milliseconds. */
    private readonly wallTime: () => number,
  ) {}

  /**
   * Creates the missing directories of a request.
   * @returns The mounts in mount order.
   * @throws kind `invalid` or `precondition` for a path of the machine that may not be mounted,
   *   `exhausted` when the disk is full.
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
   * Lists the groups with empty directories, and the wall-clock time in milliseconds at which a
   * container of the group was last started.
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

  /** Whether a group has empty directories. */
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
        const made = await this.makeEmptyDirectory(name, request, toOwnership(request));
        if (source.memory === undefined) return toMount(made, true);
        const { mode, groupId } = toOwnership(request);
        await mountMemory(`volumes.${name}`, made, { ...source.memory, mode, groupId });
        return { ...toMount(made, true), inMemory: true };
      }
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

  private async makeEmptyDirectory(
    name: string,
    request: ContainerRequest,
    owner: Ownership,
  ): Promise<string> {
    const group = toVolumeGroup(request);
    const made = await this.makeVolume(name, ['empty', group, name], owner);
    const usedAt = this.wallTime() / 1_000;
    await utimes(path.join(this.emptyRoot, group), usedAt, usedAt);
    return made;
  }

  private async makeVolume(
    volume: string,
    steps: readonly string[],
    owner: Ownership = { mode: VOLUME_MODE },
  ): Promise<string> {
    const wrong = steps.find((step) => !PATH_COMPONENT.test(step));
    if (wrong !== undefined) {
      throw new CloudlessError(
        'invalid',
        `volumes.${volume}: ${JSON.stringify(wrong)} is not a valid name of a directory`,
      );
    }
    const made = path.join(this.directory, ...steps);
    try {
      await makeDirectory(path.dirname(made), OWN_MODE);
      await mkdir(made);
      if (owner.groupId !== undefined) await chown(made, 0, owner.groupId);
      await chmod(made, owner.mode); // independent of the umask of this process
    } catch (reason) {
      const { code } = reason as NodeJS.ErrnoException;
      if (code !== 'EEXIST') {
        const kind = code === 'ENOSPC' || code === 'EDQUOT' ? 'exhausted' : 'precondition';
        throw new CloudlessError(
          kind,
          `volumes.${volume}: ${made} cannot be created: ${errorMessageOf(reason)}`,
          { cause: reason },
        );
      }
    }
    return made;
  }

  /**
   * Creates the mount points inside read-only volumes, because the runtime cannot create them
   * there.
   */
  private async makeMountPoints(mounts: readonly ContainerMount[]): Promise<void> {
    for (const [index, { containerPath }] of mounts.entries()) {
      const around = mounts
        .slice(0, index)
        .findLast((mount) => isWithin(containerPath, mount.containerPath));
      if (around === undefined || !around.readonly || !isWithin(around.hostPath, this.directory))
        continue;
      await makeDirectoriesBelow(
        around.hostPath,
        path.posix.relative(around.containerPath, containerPath).split('/'),
      );
    }
  }
}
