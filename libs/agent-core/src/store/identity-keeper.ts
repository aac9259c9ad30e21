import { mergeKnown } from '../session/coordinator-directory.js';
import type { AgentIdentity, AgentStore, StoredCoordinator } from './agent-store.js';
import { SerialQueue } from './serial-queue.js';

/**
 * Identity of the agent in memory. Every change is stored before it takes effect; changes are
 * applied one after the other.
 */
export class IdentityKeeper {
  private readonly writes = new SerialQueue();

  constructor(
    private readonly store: Pick<AgentStore, 'saveIdentity'>,
    private identity: AgentIdentity,
  ) {}

  get current(): AgentIdentity {
    return this.identity;
  }

  /** Cluster id; empty until the node has been enrolled. */
  get clusterId(): string {
    return this.identity.clusterId ?? '';
  }

  /** Stores the cluster id. The id is on disk when the promise resolves. */
  joinCluster(clusterId: string): Promise<void> {
    return this.update((identity) => ({ ...identity, clusterId }));
  }

  /**
   * Stores a higher leader epoch. The epoch is on disk when the promise resolves. Has no effect for
   * an epoch that is not higher than the stored epoch.
   */
  raiseEpoch(epoch: bigint): Promise<void> {
    if (epoch <= this.identity.highestEpoch) return Promise.resolve();
    return this.update((identity) =>
      epoch > identity.highestEpoch ? { ...identity, highestEpoch: epoch } : identity,
    );
  }

  /** Stores the coordinators that the cluster has named. Has no effect when nothing is new. */
  learnCoordinators(named: readonly StoredCoordinator[]): Promise<void> {
    return this.update((identity) => {
      const known = identity.coordinators ?? [];
      const coordinators = mergeKnown(known, named);
      return coordinators === known ? identity : { ...identity, coordinators };
    });
  }

  private update(apply: (identity: AgentIdentity) => AgentIdentity): Promise<void> {
    return this.writes.run(async () => {
      const next = apply(this.identity);
      if (next === this.identity) return;
      await this.store.saveIdentity(next);
      this.identity = next;
    });
  }
}
