import { errorFields, type Log } from '@cloudless/base';
import type { ContainerRequest } from '@cloudless/runtime';
import type { Inventory } from '../containers/inventory.js';
import { toVolumeGroup } from '../containers/labels.js';
import { KeyedMutex } from '../system/keyed-mutex.js';
import type { ContainerMount } from './mount-paths.js';
import type { VolumeStore } from './volume-store.js';

export interface GroupVolumesOptions {
  readonly store: VolumeStore;
  readonly inventory: Pick<Inventory, 'list' | 'refreshAll'>;
  readonly log: Log;
}

/**
 * Manages the empty directories of groups. They exist from the first start of a container of the
 * group to the removal of its last container.
 */
export class GroupVolumes {
  private readonly starting = new Map<string, number>();
  private readonly locks = new KeyedMutex();

  constructor(private readonly options: GroupVolumesOptions) {}

  /** Creates the directories that a container mounts. */
  async createMounts(request: ContainerRequest): Promise<readonly ContainerMount[]> {
    if ((request.volumes ?? []).length === 0 && request.shmSizeBytes === undefined) return [];
    // a running removal ends before the directory is created again
    const end = await this.locks.lock(toVolumeGroup(request));
    try {
      return await this.options.store.createMounts(request);
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
    const end = await this.locks.lock(group);
    try {
      const { store, inventory } = this.options;
      if (!store.hasGroup(group)) return;
      await inventory.refreshAll();
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
    for (const { group, usedAtMs } of await this.options.store.listGroups()) {
      if (usedAtMs > usedBeforeMs || this.isNeeded(group)) continue;
      this.options.log.info('removing empty directories without a container', { group });
      await this.release(group);
    }
  }

  private isNeeded(group: string): boolean {
    return (
      this.starting.has(group) ||
      this.options.inventory.list().some((known) => known.recorded.group === group)
    );
  }
}
