import { definedFields } from '@cloudless/base';
import type {
  AgentIdentity,
  AgentStore,
  StoredAgent,
  StoredReplica,
} from '../store/agent-store.js';

/** In-memory store that survives restarts of the agent, as a disk does. */
export class MemoryAgentStore implements AgentStore {
  identity: AgentIdentity | undefined;
  readonly replicas = new Map<string, StoredReplica>();
  /** While set, every save fails with this error. */
  failure: Error | undefined;
  /** Saves in order: `identity`, a replica id, or `-` and a replica id for a removal. */
  readonly writes: string[] = [];

  async load(): Promise<StoredAgent> {
    return {
      ...definedFields({ identity: this.identity }),
      replicas: [...this.replicas.values()],
    };
  }

  async saveIdentity(identity: AgentIdentity): Promise<void> {
    await this.write('identity');
    this.identity = identity;
  }

  async saveReplica(replica: StoredReplica): Promise<void> {
    await this.write(replica.replicaId);
    this.replicas.set(replica.replicaId, replica);
  }

  async removeReplica(replicaId: string): Promise<void> {
    await this.write(`-${replicaId}`);
    this.replicas.delete(replicaId);
  }

  private async write(name: string): Promise<void> {
    await Promise.resolve(); // asynchronous, as a disk is
    if (this.failure !== undefined) throw this.failure;
    this.writes.push(name);
  }
}
