import { CloudlessError, errorFields, type ContainerId, type Log } from '@cloudless/base';
import type { ContainerLease, ContainerRuntime } from '@cloudless/runtime';
import type { Contact } from '../contact.js';
import type { ReplicaPlan } from './replica-plan.js';
import type { ReplicaState } from './replica-state.js';

/** What {@link ReplicaLease} works with. */
export interface ReplicaLeaseDeps {
  readonly runtime: Pick<ContainerRuntime, 'renew'>;
  readonly contact: Contact;
  readonly log: Log;
}

/** The lease that the containers of one replica live by while it is exclusive. */
export class ReplicaLease {
  /** Which stop_after the lease of the newest container was made from. */
  private leased:
    { readonly id: ContainerId; readonly stopAfterMs: number | undefined } | undefined;

  /** @param current - The replica as it is now. */
  constructor(
    private readonly deps: ReplicaLeaseDeps,
    private readonly current: () => ReplicaState,
  ) {}

  /**
   * The lease that the running container of an exclusive replica is to have from now on; undefined
   * when it has none.
   */
  toRenew(): readonly [ContainerId, ContainerLease] | undefined {
    const { activity } = this.current();
    const runs = ['running', 'killing', 'leaving', 'terminating'].includes(activity.kind);
    const lease = runs ? this.now() : undefined;
    return lease === undefined || !('containerId' in activity)
      ? undefined
      : [activity.containerId, lease];
  }

  /**
   * It ends in time for a replacement, which starts twice stop_after after the node's lease at the
   * earliest: SIGTERM stop_after from the last contact, SIGKILL not later than the same time again.
   * Undefined when the replica is not exclusive.
   */
  now(plan: ReplicaPlan | undefined = this.current().plan): ContainerLease | undefined {
    if (plan?.stopAfterMs === undefined) return undefined;
    return {
      leaseMs: this.deps.contact.remainingMs(plan.stopAfterMs),
      graceMs: Math.min(plan.graceMs, plan.stopAfterMs),
    };
  }

  /**
   * A container is being started with what its plan says now; tried again with the same id, it may
   * run as the first try had it.
   */
  isGivenTo(containerId: ContainerId): void {
    if (this.leased?.id !== containerId)
      this.leased = { id: containerId, stopAfterMs: this.current().plan?.stopAfterMs };
  }

  /** What runs is exclusive from now on, or no more, before the order is acknowledged. */
  async adjust(plan: ReplicaPlan): Promise<void> {
    const { activity } = this.current();
    if (!('containerId' in activity) || activity.containerId === undefined) return;
    const { containerId } = activity;
    if (this.stopAfterOf(containerId) === plan.stopAfterMs) return;
    if (activity.kind === 'starting' || activity.kind === 'backingOff') {
      throw new CloudlessError('unavailable', 'its container is being started without that');
    }
    const lease = this.now(plan);
    if (lease?.leaseMs === 0)
      throw new CloudlessError(
        'unavailable',
        'the coordinator does not count this node as alive yet',
      );
    await this.deps.runtime.renew(new Map([[containerId, lease]]));
    this.leased = { id: containerId, stopAfterMs: plan.stopAfterMs };
  }

  /**
   * The order that changed the lease does not count: a container that nobody renews for must not
   * end by it.
   */
  async restore(): Promise<void> {
    const { plan } = this.current();
    try {
      if (plan !== undefined) await this.adjust(plan);
    } catch (reason) {
      this.deps.log.warn('lease not as before', errorFields(reason));
    }
  }

  /**
   * What the lease of a container was made from: that of its start, or of a change since; of an
   * adopted one, that of its order.
   */
  private stopAfterOf(containerId: ContainerId): number | undefined {
    return this.leased?.id === containerId
      ? this.leased.stopAfterMs
      : this.current().plan?.stopAfterMs;
  }
}
