import { closeSync, constants, openSync } from 'node:fs';
import type { ContainerId } from '@cloudless/base';
import type { ContainerStatus } from '@cloudless/runtime';
import { layout } from '../supervisor/container-paths.js';

/**
 * Holds the pipes of running containers open, without reading. A pipe's content is lost when nobody
 * holds it; so what a container writes before it ends, while its supervisor has been killed, waits
 * for the next supervisor.
 */
export class OutputKeeper {
  private readonly held = new Map<ContainerId, readonly number[]>();

  constructor(private readonly directory: string) {}

  /** Holds or lets go, as the status demands. */
  follow({ containerId, phase }: ContainerStatus): void {
    if (phase === 'exited') this.release(containerId);
    else if (!this.held.has(containerId)) this.held.set(containerId, this.open(containerId));
  }

  /** Holds those of these containers, and no other. */
  set(statuses: readonly ContainerStatus[]): void {
    const running = new Set(
      statuses.filter(({ phase }) => phase === 'running').map(({ containerId }) => containerId),
    );
    for (const containerId of this.held.keys())
      if (!running.has(containerId)) this.release(containerId);
    for (const status of statuses) this.follow(status);
  }

  close(): void {
    for (const containerId of [...this.held.keys()]) this.release(containerId);
  }

  private open(containerId: ContainerId): readonly number[] {
    const folder = layout.container(this.directory, containerId);
    return (['stdout', 'stderr'] as const).flatMap((stream) => {
      try {
        return [openSync(layout.pipe(folder, stream), constants.O_RDONLY | constants.O_NONBLOCK)];
      } catch {
        return []; // it has just ended
      }
    });
  }

  private release(containerId: ContainerId): void {
    for (const fd of this.held.get(containerId) ?? []) closeSync(fd);
    this.held.delete(containerId);
  }
}
