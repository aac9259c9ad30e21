import { closeSync, constants, openSync } from 'node:fs';
import type { ContainerId } from '@cloudless/base';
import type { ContainerStatus } from '@cloudless/runtime';
import { layout } from '../supervisor/container/container-paths.js';

/**
 * Holds the pipes of running containers open, without reading. The kernel drops the content of a
 * pipe when the last process closes the pipe. With this second holder, output that a container
 * writes while its supervisor is dead waits for the next supervisor.
 */
export class PipeHolder {
  /** The open descriptors of each container. */
  private readonly held = new Map<ContainerId, readonly number[]>();

  constructor(private readonly directory: string) {}

  /** Opens the pipes of a running container, or closes those of an exited container. */
  applyStatus({ containerId, phase }: ContainerStatus): void {
    if (phase === 'exited') this.release(containerId);
    else if (!this.held.has(containerId)) this.held.set(containerId, this.open(containerId));
  }

  /** Holds the pipes of exactly the running containers of this list. */
  applyAll(statuses: readonly ContainerStatus[]): void {
    const running = new Set(
      statuses.filter(({ phase }) => phase === 'running').map(({ containerId }) => containerId),
    );
    for (const containerId of this.held.keys())
      if (!running.has(containerId)) this.release(containerId);
    for (const status of statuses) this.applyStatus(status);
  }

  /** Closes all pipes. */
  close(): void {
    for (const containerId of [...this.held.keys()]) this.release(containerId);
  }

  private open(containerId: ContainerId): readonly number[] {
    const folder = layout.container(this.directory, containerId);
    return (['stdout', 'stderr'] as const).flatMap((stream) => {
      try {
        return [openSync(layout.pipe(folder, stream), constants.O_RDONLY | constants.O_NONBLOCK)];
      } catch {
        return []; // the container has just ended
      }
    });
  }

  private release(containerId: ContainerId): void {
    for (const fd of this.held.get(containerId) ?? []) closeSync(fd);
    this.held.delete(containerId);
  }
}
