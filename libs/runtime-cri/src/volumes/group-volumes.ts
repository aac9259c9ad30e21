import { errorFields, type Log } from '@cloudless/base';
import type { ContainerRequest } from '@cloudless/runtime';
import type { ContainerInventory } from '../containers/inventory.js';
import { toVolumeGroup } from '../containers/labels.js';
import { KeyedMutex } from '../system/keyed-mutex.js';
import type { ContainerMount } from './mount-paths.js';
import type { VolumeStore } from './volume-store.js';

/** Arguments of {@link GroupVolumes}. */
export interface GroupVolumesOptions {
  readonly store: VolumeStore;
  readonly inventory: Pick<ContainerInventory, 'list' | 'refreshAll'>;
  readonly log: Log;
}

/**
 * Manages the empty directories of groups of containers. The directories exist from the first start
 * of a container of the group until its last container is removed.
 */
export class GroupVolumes {
  /** Number of running starts by group. */
  private readonly startCounts = new Map<string, number>();
  /** Serializes the creation and the removal of the directories of one group. */
  private readonly locks = new KeyedMutex();

  constructor(private readonly options: GroupVolumesOptions) {}

  /**
   * Creates the directories that a container mounts, see {@link VolumeStore.createMounts}. Call
   * {@link GroupVolumes.hold} before.
   */
  async createMounts(request: ContainerRequest): Promise<readonly ContainerMount[]> {
    if ((request.volumes ?? []).length === 0 && request.shmSizeBytes === undefined) return [];
    // Wait for the end of a running removal before the directory is created again.
    const unlock = await this.locks.lock(toVolumeGroup(request));
    try {
      return await this.options.store.createMounts(request);
    } finally {
      unlock();
    }
  }

  /**
   * Protects the directories of a group while a container is being started.
   * @returns A function that ends the protection. Call it when the container is in the inventory,
   *   or when the start has failed. Further calls have no effect.
   */
  hold(group: string): () => void {
    this.startCounts.set(group, (this.startCounts.get(group) ?? 0) + 1);
    let isReleased = false;
    return () => {
      if (isReleased) return;
      isReleased = true;
      const count = (this.startCounts.get(group) ?? 1) - 1;
      if (count > 0) this.startCounts.set(group, count);
      else this.startCounts.delete(group);
    };
  }

  /**
   * Removes the empty directories of a group, unless a container of the group exists or is being
   * started. Refreshes the inventory first. Failures are logged, and the sweep tries again.
   */
  async release(group: string): Promise<void> {
    const unlock = await this.locks.lock(group);
    try {
      const { store, inventory } = this.options;
      if (!store.hasGroup(group)) return;
      await inventory.refreshAll();
      if (!this.isNeeded(group)) await store.removeGroup(group);
    } catch (reason) {
      this.options.log.warn('empty directories not removed', { group, ...errorFields(reason) });
    } finally {
      unlock();
    }
  }

  /**
   * Removes the empty directories of groups without a container.
   * @param usedBeforeMs - Wall-clock milliseconds; directories that were used later stay.
   */
  async sweep(usedBeforeMs: number): Promise<void> {
    for (const { group, usedAtMs } of await this.options.store.listGroups()) {
      if (usedAtMs > usedBeforeMs || this.isNeeded(group)) continue;
      this.options.log.info('removing empty directories without a container', { group });
      await this.release(group);
    }
  }

  private isNeeded(group: string): boolean {
    return (
      this.startCounts.has(group) ||
      this.options.inventory.list().some((known) => known.recorded.group === group)
    );
  }
}
