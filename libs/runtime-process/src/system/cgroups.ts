import { createHash } from 'node:crypto';
import { mkdirSync, readdirSync, readFileSync, rmdirSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { errorCodeOf } from '@cloudless/base';
import {
  locateCgroup,
  parseCgroupMounts,
  parseProcCgroup,
  pathInHierarchy,
} from '@cloudless/cgroup-stats';
import { killProcess, MAX_KILL_ROUNDS } from './process-reference.js';

/** Controller of version 1 by which the processes of a group are stopped before they are killed. */
const FREEZER = 'freezer';

/**
 * A control group. A process stays in its group even when it changes its session or its
 * environment. Only root, or a user with a delegated part of the tree, can move a process or create
 * a group.
 * @see Linux kernel, Documentation/admin-guide/cgroup-v2.rst (`cgroup.kill` since 5.14),
 *   cgroup-v1/freezer-subsystem.rst
 */
export class Cgroup {
  /**
   * @param folder - Absolute path in a mounted hierarchy: version 2, or the freezer of version 1.
   */
  constructor(readonly folder: string) {}

  /** File that a process writes `0` to in order to join. */
  get joinFile(): string {
    return path.join(this.folder, 'cgroup.procs');
  }

  /**
   * Creates the group and its parent, unless they exist.
   * @throws The error of the file system, such as EACCES.
   */
  create(): void {
    for (const folder of [path.dirname(this.folder), this.folder]) {
      try {
        mkdirSync(folder);
      } catch (reason) {
        if (errorCodeOf(reason) !== 'EEXIST') throw reason;
      }
    }
  }

  /**
   * Kills every process of the group and of the groups below it. Does nothing when the group does
   * not exist.
   */
  kill(): void {
    if (writeQuietly(path.join(this.folder, 'cgroup.kill'), '1')) return;
    for (let round = 0; round < MAX_KILL_ROUNDS; round += 1) {
      this.setFrozen(true);
      const pids = this.listProcesses();
      for (const pid of pids) killProcess(pid);
      this.setFrozen(false);
      if (pids.length === 0) return;
    }
  }

  /**
   * Removes the group and the groups below it.
   * @returns True when the group does not exist any more; false while a process remains.
   */
  remove(): boolean {
    try {
      for (const below of this.listChildren()) if (!below.remove()) return false;
      rmdirSync(this.folder);
      return true;
    } catch (reason) {
      return errorCodeOf(reason) === 'ENOENT';
    }
  }

  /** Lists the groups directly below this group; empty when this group does not exist. */
  listChildren(): readonly Cgroup[] {
    try {
      const entries = readdirSync(this.folder, { withFileTypes: true });
      return entries
        .filter((entry) => entry.isDirectory())
        .map(({ name }) => new Cgroup(path.join(this.folder, name)));
    } catch {
      return []; // the group was removed
    }
  }

  private listProcesses(): readonly number[] {
    const below = this.listChildren().flatMap((group) => group.listProcesses());
    try {
      const pids = readFileSync(this.joinFile, 'utf8').split('\n').filter(Boolean).map(Number);
      // 0 is a process of another pid namespace
      return [...below, ...pids.filter((pid) => pid > 0)];
    } catch {
      return below;
    }
  }

  private setFrozen(isFrozen: boolean): void {
    if (writeQuietly(path.join(this.folder, 'freezer.state'), isFrozen ? 'FROZEN' : 'THAWED'))
      return;
    writeQuietly(path.join(this.folder, 'cgroup.freeze'), isFrozen ? '1' : '0');
  }
}

/**
 * Parses the groups of a process. Pure.
 * @param mounts - Text of `/proc/self/mountinfo`.
 * @param membership - Text of `/proc/self/cgroup`.
 * @returns Folders of the groups that this process is in: version 2 first, then the freezer of
 *   version 1. A mount that does not contain the group stands for the group.
 * @throws MalformedCgroupFileError when a text does not have the documented form.
 * @see proc_pid_mountinfo(5), cgroups(7) "/proc files"
 */
export function findOwnGroups(mounts: string, membership: string): readonly string[] {
  const memberships = parseProcCgroup(membership);
  const groups = parseCgroupMounts(mounts).flatMap((mount) => {
    const { version, controllers } = mount;
    const canKill = version === 2 || controllers.includes(FREEZER);
    if (!canKill || pathInHierarchy(memberships, mount) === undefined) return [];
    const [folder = mount.mountPoint] =
      locateCgroup([mount], memberships, FREEZER)?.directories ?? [];
    return [{ version, folder }];
  });
  return [
    ...groups.filter(({ version }) => version === 2),
    ...groups.filter(({ version }) => version === 1),
  ].map(({ folder }) => folder);
}

/**
 * Returns the parent group for the containers of one supervisor. The name of the group contains a
 * hash of the directory.
 * @param ownGroup - Folder of a group of this process.
 * @param directory - Directory of the supervisor.
 */
export function toDirectoryGroup(ownGroup: string, directory: string): Cgroup {
  const digest = createHash('sha256').update(directory).digest('hex').slice(0, 16);
  return new Cgroup(path.join(ownGroup, `cloudless-${digest}`));
}

/**
 * Lists the folders of the groups that this process is in; empty where there are no cgroups. This
 * user may or may not be permitted to create groups there.
 */
export function readOwnGroups(): readonly string[] {
  try {
    return findOwnGroups(
      readFileSync('/proc/self/mountinfo', 'utf8'),
      readFileSync('/proc/self/cgroup', 'utf8'),
    );
  } catch {
    return [];
  }
}

function writeQuietly(file: string, text: string): boolean {
  try {
    writeFileSync(file, text, { flag: 'r+' });
    return true;
  } catch {
    return false; // this kernel version has no such file, or the group was removed
  }
}
