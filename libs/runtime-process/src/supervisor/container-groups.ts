import path from 'node:path';
import { sleep, type Clock, type ContainerId, type Log } from '@cloudless/base';
import { Cgroup } from '../system/cgroups.js';

/** A group that could not be removed, as a killed process takes a moment to go, is tried again after so long. */
const RETRY_MS = 50;
/** So many times: a process that the kernel cannot end within a minute waits for a device. */
const MAX_TRIES = 1_200;
/** At the end of the supervisor only so many times: the next one goes on. */
const MAX_CLOSE_TRIES = 40;

/** The cgroups of all containers of a supervisor. */
export class ContainerGroups {
  private readonly leaving = new Map<string, { readonly group: Cgroup; tries: number }>();
  private waiting = false;

  /** @param parent - Group below which each container gets its own; undefined where there are none. */
  constructor(
    private readonly parent: Cgroup | undefined,
    private readonly clock: Clock,
    private readonly log: Log,
  ) {}

  /** The group of a container, not made yet. */
  groupOf(containerId: ContainerId): Cgroup | undefined {
    return this.parent === undefined ? undefined : new Cgroup(path.join(this.parent.folder, containerId));
  }

  /** Kills what is left in the group of an ended container, and removes the group, now or soon. */
  clear(group: Cgroup | undefined): void {
    if (group === undefined) return;
    this.leaving.set(group.folder, { group, tries: 0 });
    this.removeSome();
  }

  /** Clears the groups of all containers but those that run: an earlier supervisor left them. */
  clearOthers(isRunning: (containerId: string) => boolean): void {
    for (const group of this.parent?.groupsBelow() ?? []) if (!isRunning(path.basename(group.folder))) this.clear(group);
  }

  /** Removes everything, as far as the kernel lets go of it soon. */
  async close(): Promise<void> {
    for (let turn = 0; turn < MAX_CLOSE_TRIES && this.parent !== undefined; turn += 1) {
      this.parent.kill();
      if (this.parent.remove()) return;
      await sleep(this.clock, RETRY_MS / 10);
    }
  }

  /** Removes the group above those of the containers; stays while one of them is there. */
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
        this.log.error('processes of an ended container cannot be ended', { cgroup: folder });
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
