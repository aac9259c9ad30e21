import { CloudlessError, errorFields, type ContainerId, type Log } from '@cloudless/base';
import type { ContainerLease, ContainerRuntime } from '@cloudless/runtime';
import type { CoordinatorContact } from '../session/coordinator-contact.js';
import { createRuntimeSilentError, type ReplicaTarget } from './replica-target.js';
import type { ReplicaState } from './replica-state.js';

export interface ReplicaLeaseDeps {
  readonly runtime: Pick<ContainerRuntime, 'renew'>;
  readonly contact: CoordinatorContact;
  readonly log: Log;
}

/**
 * Leases of the containers of one replica while it is exclusive. The runtime ends a container whose
 * lease is not renewed.
 */
export class ReplicaLease {
  /** Newest container with the `stop_after` that its lease was computed from. */
  private leasedContainer:
    { readonly id: ContainerId; readonly stopAfterMs: number | undefined } | undefined;

  /** @param current - Returns the current state of the replica. */
  constructor(
    private readonly deps: ReplicaLeaseDeps,
    private readonly current: () => ReplicaState,
  ) {}

  /**
   * Returns the id and the new lease of the running container; undefined when the replica is not
   * exclusive or does not run.
   */
  createRenewal(): readonly [ContainerId, ContainerLease] | undefined {
    const { activity } = this.current();
    const runs = ['running', 'killing', 'leaving', 'terminating'].includes(activity.kind);
    const lease = runs ? this.computeLease() : undefined;
    return lease === undefined || !('containerId' in activity)
      ? undefined
      : [activity.containerId, lease];
  }

  /**
   * Computes the lease from the time since the last contact: SIGTERM after `stop_after` without
   * contact, SIGKILL after at most the same time again. A replacement starts no earlier than twice
   * `stop_after` after the end of the node's lease, so the container has exited before. Undefined
   * when the replica is not exclusive.
   */
  computeLease(
    target: ReplicaTarget | undefined = this.current().target,
  ): ContainerLease | undefined {
    if (target?.stopAfterMs === undefined) return undefined;
    return {
      leaseMs: this.deps.contact.remainingMs(target.stopAfterMs),
      graceMs: Math.min(target.graceMs, target.stopAfterMs),
    };
  }

  /**
   * Records from which `stop_after` the lease of a started container was computed. A retry with the
   * same id keeps the first value, as the first attempt may have started the container.
   */
  recordStart(containerId: ContainerId): void {
    if (this.leasedContainer?.id !== containerId)
      this.leasedContainer = { id: containerId, stopAfterMs: this.current().target?.stopAfterMs };
  }

  /**
   * Adds, changes or removes the lease of the running container, before the order is acknowledged.
   * @throws kind `unavailable` when the lease cannot be changed now; the coordinator then repeats
   *   the order.
   */
  async adjust(target: ReplicaTarget): Promise<void> {
    const { activity, target: previousTarget } = this.current();
    if (activity.kind === 'unlisted' && previousTarget?.stopAfterMs !== target.stopAfterMs)
      throw createRuntimeSilentError(target.usesImage);
    if (!('containerId' in activity) || activity.containerId === undefined) return;
    const { containerId } = activity;
    if (this.findStopAfter(containerId) === target.stopAfterMs) return;
    if (activity.kind === 'starting' || activity.kind === 'backingOff') {
      throw new CloudlessError('unavailable', 'the container is being started with another lease');
    }
    const lease = this.computeLease(target);
    if (lease?.leaseMs === 0)
      throw new CloudlessError('unavailable', 'no coordinator has admitted this node yet');
    await this.deps.runtime.renew(new Map([[containerId, lease]]));
    this.leasedContainer = { id: containerId, stopAfterMs: target.stopAfterMs };
  }

  /**
   * Restores the lease of the current target when the new order could not be stored: the agent
   * renews leases by the stored order and would not renew the changed lease. Never rejects.
   */
  async restore(): Promise<void> {
    const { target } = this.current();
    try {
      if (target !== undefined) await this.adjust(target);
    } catch (reason) {
      this.deps.log.warn('lease not restored', errorFields(reason));
    }
  }

  /**
   * Returns the `stop_after` from which the lease of a container was computed, as recorded at its
   * start or at the last change of the lease. For an adopted container: `stop_after` of its order.
   */
  private findStopAfter(containerId: ContainerId): number | undefined {
    return this.leasedContainer?.id === containerId
      ? this.leasedContainer.stopAfterMs
      : this.current().target?.stopAfterMs;
  }
}
