import { errorFields, errorKindOf, type ContainerId, type Log } from '@cloudless/base';
import { RUNTIME_RETRY_MS } from './reduce-replica.js';
import { removeContainers } from './replica-containers.js';
import type { ReplicaHost } from './replica-host.js';
import type { ReplicaRunnerDeps } from './replica-runner-deps.js';
import { createLostExit } from './restore-replica.js';

/** Stops and removes containers of one replica. */
export class ContainerRemoval {
  constructor(
    private readonly host: ReplicaHost,
    private readonly deps: ReplicaRunnerDeps,
    private readonly log: Log,
  ) {}

  /**
   * Stops the current container and reports its exit to the host. Repeats a stop that fails. A
   * container that the runtime does not have counts as exited.
   */
  async terminate(containerId: ContainerId, graceMs: number): Promise<void> {
    for (;;) {
      try {
        this.host.onExited(await this.deps.runtime.stop(containerId, graceMs));
        return;
      } catch (reason) {
        if (this.host.isClosed) return;
        if (errorKindOf(reason) === 'notFound')
          return this.host.apply({ kind: 'exited', exit: createLostExit(containerId) });
        this.log.warn('container not stopped', { containerId, ...errorFields(reason) });
      }
      await this.waitForRetry();
      if (this.host.current.activity.kind === 'ended' || this.host.isClosed) return;
    }
  }

  /**
   * Kills and removes a container that a given-up start or an earlier agent has started, while
   * another container runs for the replica. Retries after a failure.
   */
  async removeStray(containerId: ContainerId): Promise<void> {
    const { runtime } = this.deps;
    for (let failures = 0; !this.host.isClosed; failures += 1) {
      try {
        await runtime.stop(containerId, 0);
        return await runtime.remove(containerId);
      } catch (reason) {
        if (errorKindOf(reason) === 'notFound') return;
        const level = failures === 0 ? 'warn' : 'debug'; // one warning per outage of the runtime
        this.log[level]('container of a given-up start not removed', {
          containerId,
          ...errorFields(reason),
        });
      }
      await this.waitForRetry();
    }
  }

  /** Removes an exited container with its logs. Logs a failure and does not retry. */
  async removeExited(containerId: ContainerId): Promise<void> {
    try {
      await this.deps.runtime.remove(containerId);
    } catch (reason) {
      this.log.warn('container not removed', { containerId, ...errorFields(reason) });
    }
  }

  /**
   * Stops and removes every container of the replica, then its stored data. Retries after a
   * failure, also of `removeStoredData`.
   * @param removeStoredData - Called once no container is left.
   */
  async removeAll(removeStoredData: () => Promise<void>): Promise<void> {
    for (let failures = 0; !this.host.isClosed; failures += 1) {
      try {
        const { replicaId, target } = this.host.current;
        await removeContainers(replicaId, target?.usesImage, this.deps);
        return await removeStoredData();
      } catch (reason) {
        const level = failures === 0 ? 'warn' : 'debug'; // one warning per outage of the runtime
        this.log[level]('replica not forgotten yet', errorFields(reason));
        await this.waitForRetry();
      }
    }
  }

  private waitForRetry(): Promise<void> {
    return new Promise((resolve) => {
      this.deps.clock.setTimer(RUNTIME_RETRY_MS, resolve);
    });
  }
}
