import path from 'node:path';
import { sleep, type Clock, type ContainerId, type Log } from '@cloudless/base';
import { Cgroup } from '../system/cgroups.js';

/** Delay between attempts to remove a group: a killed process takes a moment to end. */
const RETRY_MS = 50;
/**
 * Most attempts to remove a group, one minute in total. A process that the kernel cannot end by
 * then waits for a device.
 */
const MAX_TRIES = 1_200;
/** Most attempts when the supervisor ends; the next supervisor continues. */
const MAX_CLOSE_TRIES = 40;

/** The cgroups of all containers of a supervisor. */
export class ContainerGroups {
  private readonly leaving = new Map<string, { readonly group: Cgroup; tries: number }>();
  private waiting = false;

  /**
   * @param parent - Group that contains the group of each container; undefined where there are no
   *   cgroups.
   */
  constructor(
    private readonly parent: Cgroup | undefined,
    private readonly clock: Clock,
    private readonly log: Log,
  ) {}

  /** Returns the group of a container, which may not exist yet. */
  groupOf(containerId: ContainerId): Cgroup | undefined {
    return this.parent === undefined
      ? undefined
      : new Cgroup(path.join(this.parent.folder, containerId));
  }

  /**
   * Kills the remaining processes in the group of an ended container, and removes the group as soon
   * as it is empty.
   */
  clear(group: Cgroup | undefined): void {
    if (group === undefined) return;
    this.leaving.set(group.folder, { group, tries: 0 });
    this.removeSome();
  }

  /**
   * Kills and removes the groups that an earlier supervisor left, except those of running
   * containers.
   */
  clearOthers(isRunning: (containerId: string) => boolean): void {
    for (const group of this.parent?.groupsBelow() ?? [])
      if (!isRunning(path.basename(group.folder))) this.clear(group);
  }

  /** Kills everything in all groups and removes the groups, within {@link MAX_CLOSE_TRIES}. */
  async close(): Promise<void> {
    for (let turn = 0; turn < MAX_CLOSE_TRIES && this.parent !== undefined; turn += 1) {
      this.parent.kill();
      if (this.parent.remove()) return;
      await sleep(this.clock, RETRY_MS / 10);
    }
  }

  /** Removes the parent group, unless the group of a container remains. */
  removeParent(): void {
    this.parent?.remove();
  }

  private removeSome(): void {
    for (const [folder, entry] of this.leaving) {
      entry.group.kill();
      entry.tries += 1;
      if (entry.group.remove()) this.leaving.delete(folder);
      else if (entry.tries >= MAX_TRIES) {
        this.leaving.delete(folder);
        this.log.error('processes of an ended container cannot be killed', { cgroup: folder });
      }
    }
    if (this.waiting || this.leaving.size === 0) return;
    this.waiting = true;
    this.clock.setTimer(RETRY_MS, () => {
      this.waiting = false;
      this.removeSome();
    });
  }
}
