import { errorFields, type Log } from '@cloudless/base';
import type { ContainerRequest } from '@cloudless/runtime';
import type { Inventory } from '../containers/inventory.js';
import { groupOf } from '../containers/labels.js';
import { Turns } from '../exec/turns.js';
import type { PlannedMount } from './mount-paths.js';
import type { VolumeStore } from './volume-store.js';

/** Needs of {@link GroupVolumes}. */
export interface GroupVolumesOptions {
  readonly store: VolumeStore;
  readonly inventory: Pick<Inventory, 'all' | 'look'>;
  readonly log: Log;
}

/**
 * The empty directories of groups: there from the first start of a container to the removal of the
 * last one.
 */
export class GroupVolumes {
  private readonly starting = new Map<string, number>();
  private readonly turns = new Turns();

  constructor(private readonly options: GroupVolumesOptions) {}

  /** Makes what a container finds mounted, and keeps it while the container is being started. */
  async mountsFor(request: ContainerRequest): Promise<readonly PlannedMount[]> {
    if ((request.volumes ?? []).length === 0 && request.shmSizeBytes === undefined) return [];
    // what is being removed is gone before it is made anew
    const end = await this.turns.take(groupOf(request));
    try {
      return await this.options.store.mountsOf(request);
    } finally {
      end();
    }
  }

  /**
   * From here on a container of this group is being started. @returns To be called when it is
   * known, or is not to be.
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
   * Removes the empty directories of a group, if it has some and no container needs them, as a new
   * look shows. What cannot be removed is left to the sweep.
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
   * Removes those of groups that nobody knows. @param usedBeforeMs - Newer ones are left alone:
   * wall-clock milliseconds.
   */
  async sweep(usedBeforeMs: number): Promise<void> {
    for (const { group, usedAtMs } of await this.options.store.groups()) {
      if (usedAtMs > usedBeforeMs || this.isNeeded(group)) continue;
      this.options.log.info('empty directories without a container are removed', { group });
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
