import path from 'node:path';
import { sleep, type Clock, type ContainerId, type Log } from '@cloudless/base';
import { Cgroup } from '../../system/cgroups.js';

/** Delay between attempts to remove a cgroup: a killed process takes a moment to end. */
const RETRY_MS = 50;
/**
 * Most attempts to remove a cgroup, one minute in total. A process that has not ended by then waits
 * for a device, which no signal interrupts.
 */
const MAX_TRIES = 1_200;
/** Delay between attempts when the supervisor ends. */
const CLOSE_RETRY_MS = 5;
/** Most attempts when the supervisor ends, 0.2 s in total. The next supervisor removes the rest. */
const MAX_CLOSE_TRIES = 40;

/** The cgroups of all containers of a supervisor. */
export class ContainerCgroups {
  private readonly pendingRemovals = new Map<string, { readonly group: Cgroup; tries: number }>();
  private isRetryScheduled = false;

  /**
   * @param parent - Group that contains the group of each container; undefined where there are no
   *   cgroups.
   */
  constructor(
    private readonly parent: Cgroup | undefined,
    private readonly clock: Clock,
    private readonly log: Log,
  ) {}

  /**
   * Returns the cgroup of a container, which may not exist yet; undefined where there are no
   * cgroups.
   */
  getGroup(containerId: ContainerId): Cgroup | undefined {
    return this.parent === undefined
      ? undefined
      : new Cgroup(path.join(this.parent.folder, containerId));
  }

  /**
   * Kills the remaining processes in the group of an ended container, and removes the group as soon
   * as it is empty.
   */
  killAndRemove(group: Cgroup | undefined): void {
    if (group === undefined) return;
    this.pendingRemovals.set(group.folder, { group, tries: 0 });
    this.removePending();
  }

  /**
   * Kills and removes the groups that an earlier supervisor left, except those of running
   * containers.
   */
  removeOthers(isRunning: (containerId: string) => boolean): void {
    for (const group of this.parent?.listChildren() ?? [])
      if (!isRunning(path.basename(group.folder))) this.killAndRemove(group);
  }

  /** Kills all processes in all groups and tries to remove the groups for 0.2 s. */
  async close(): Promise<void> {
    for (let tries = 0; tries < MAX_CLOSE_TRIES && this.parent !== undefined; tries += 1) {
      this.parent.kill();
      if (this.parent.remove()) return;
      await sleep(this.clock, CLOSE_RETRY_MS);
    }
  }

  /** Removes the parent group, unless the group of a container remains. */
  removeParent(): void {
    this.parent?.remove();
  }

  private removePending(): void {
    for (const [folder, entry] of this.pendingRemovals) {
      entry.group.kill();
      entry.tries += 1;
      if (entry.group.remove()) this.pendingRemovals.delete(folder);
      else if (entry.tries >= MAX_TRIES) {
        this.pendingRemovals.delete(folder);
        this.log.error('processes of an ended container cannot be killed', { cgroup: folder });
      }
    }
    if (this.isRetryScheduled || this.pendingRemovals.size === 0) return;
    this.isRetryScheduled = true;
    this.clock.setTimer(RETRY_MS, () => {
      this.isRetryScheduled = false;
      this.removePending();
    });
  }
}
