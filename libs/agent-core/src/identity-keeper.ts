import type { AgentIdentity, AgentStore } from './agent-store.js';
import { SerialQueue } from './serial-queue.js';

/** Who the agent is, kept in step with its store. */
export class IdentityKeeper {
  private readonly writes = new SerialQueue();

  constructor(
    private readonly store: Pick<AgentStore, 'saveIdentity'>,
    private identity: AgentIdentity,
  ) {}

  get current(): AgentIdentity {
    return this.identity;
  }

  /** The cluster, or an empty text before the node was enrolled. */
  get clusterId(): string {
    return this.identity.clusterId ?? '';
  }

  /** On disk when it resolves. */
  join(clusterId: string): Promise<void> {
    return this.change((identity) => ({ ...identity, clusterId }));
  }

  /**
   * Keeps the epoch of a newer leadership; on disk when it resolves. An older or equal one changes
   * nothing.
   */
  raiseEpoch(epoch: bigint): Promise<void> {
    if (epoch <= this.identity.highestEpoch) return Promise.resolve();
    return this.change((identity) =>
      epoch > identity.highestEpoch ? { ...identity, highestEpoch: epoch } : identity,
    );
  }

  private change(to: (identity: AgentIdentity) => AgentIdentity): Promise<void> {
    return this.writes.run(async () => {
      const next = to(this.identity);
      if (next === this.identity) return;
      await this.store.saveIdentity(next);
      this.identity = next;
    });
  }
}
