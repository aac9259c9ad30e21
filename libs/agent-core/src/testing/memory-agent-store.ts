import { CloudlessError, definedFields } from '@cloudless/base';
import type {
  AgentIdentity,
  AgentStore,
  SaveOptions,
  StoredAgent,
  StoredReplica,
} from '../store/agent-store.js';

/** In-memory store that survives restarts of the agent, as a disk does. */
export class MemoryAgentStore implements AgentStore {
  identity: AgentIdentity | undefined;
  readonly replicas = new Map<string, StoredReplica>();
  /** While set, everything that changes the store fails with this error. */
  failure: Error | undefined;
  /** While true, no space is left: a save fails with kind `exhausted`, unless the reserve is used. */
  isFull = false;
  /** Number of saves that the reserve still allows while {@link isFull}. */
  reservedSaves = 0;
  /**
   * Changes in order: `identity`, a replica id for a save, `-` and a replica id for a removal, `!` and
   * a replica id for a mark.
   */
  readonly writes: string[] = [];

  async load(): Promise<StoredAgent> {
    return {
      ...definedFields({ identity: this.identity }),
      replicas: [...this.replicas.values()],
    };
  }

  async saveIdentity(identity: AgentIdentity): Promise<void> {
    await this.write('identity', { mayUseReserve: true });
    this.identity = identity;
  }

  async saveReplica(replica: StoredReplica, options: SaveOptions = {}): Promise<void> {
    await this.write(replica.replicaId, options);
    this.replicas.set(replica.replicaId, replica);
  }

  async markStopped(replicaId: string): Promise<void> {
    await this.change(`!${replicaId}`);
    const replica = this.replicas.get(replicaId);
    if (replica !== undefined) this.replicas.set(replicaId, { ...replica, stopped: true });
  }

  async removeReplica(replicaId: string): Promise<void> {
    await this.change(`-${replicaId}`);
    this.replicas.delete(replicaId);
  }

  private async write(name: string, { mayUseReserve = false }: SaveOptions): Promise<void> {
    if (this.isFull) {
      if (!mayUseReserve || this.reservedSaves === 0)
        throw new CloudlessError('exhausted', `no space left for ${name}`);
      this.reservedSaves -= 1;
    }
    await this.change(name);
  }

  private async change(name: string): Promise<void> {
    await Promise.resolve(); // asynchronous, as a disk is
    if (this.failure !== undefined) throw this.failure;
    this.writes.push(name);
  }
}
