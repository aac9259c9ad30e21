import { errorFields, type Log } from '@cloudless/base';
import type { ContainerRequest } from '@cloudless/runtime';
import type { Inventory } from '../containers/inventory.js';
import { groupOf } from '../containers/labels.js';
import { Turns } from '../exec/turns.js';
import type { PlannedMount } from './mount-paths.js';
import type { VolumeStore } from './volume-store.js';

export interface GroupVolumesOptions {
  readonly store: VolumeStore;
  readonly inventory: Pick<Inventory, 'all' | 'look'>;
  readonly log: Log;
}

/**
 * Manages the empty directories of groups. They exist from the first start of a container of the
 * group to the removal of its last container.
 */
export class GroupVolumes {
  private readonly starting = new Map<string, number>();
  private readonly turns = new Turns();

  constructor(private readonly options: GroupVolumesOptions) {}

  /** Creates the directories that a container mounts. */
  async mountsFor(request: ContainerRequest): Promise<readonly PlannedMount[]> {
    if ((request.volumes ?? []).length === 0 && request.shmSizeBytes === undefined) return [];
    // a running removal ends before the directory is created again
    const end = await this.turns.take(groupOf(request));
    try {
      return await this.options.store.mountsOf(request);
    } finally {
      end();
    }
  }

  /**
   * Protects the directories of a group while a container is being started.
   * @returns Ends the protection. Call it when the container is in the inventory, or the start has
   *   failed.
   */
  hold(group: string): () => void {
    this.starting.set(group, (this.starting.get(group) ?? 0) + 1);
    let isOver = false;
    return () => {
      if (isOver) return;
      isOver = true;
      const left = (this.starting.get(group) ?? 1) - 1;
      if (left > 0) this.starting.set(group, left);
      else this.starting.delete(group);
    };
  }

  /**
   * Removes the empty directories of a group, unless a container needs them according to a new
   * list. Failures are logged; the sweep tries again.
   */
  async release(group: string): Promise<void> {
    const end = await this.turns.take(group);
    try {
      const { store, inventory } = this.options;
      if (!store.hasGroup(group)) return;
      await inventory.look();
      if (!this.isNeeded(group)) await store.removeGroup(group);
    } catch (reason) {
      this.options.log.warn('empty directories not removed', { group, ...errorFields(reason) });
    } finally {
      end();
    }
  }

  /**
   * Removes the empty directories of groups without a container.
   * @param usedBeforeMs - Wall-clock milliseconds; directories that were used later stay.
   */
  async sweep(usedBeforeMs: number): Promise<void> {
    for (const { group, usedAtMs } of await this.options.store.groups()) {
      if (usedAtMs > usedBeforeMs || this.isNeeded(group)) continue;
      this.options.log.info('removing empty directories without a container', { group });
      await this.release(group);
    }
  }

  private isNeeded(group: string): boolean {
    return (
      this.starting.has(group) ||
      this.options.inventory.all().some((known) => known.memory.group === group)
    );
  }
}
