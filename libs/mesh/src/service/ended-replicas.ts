/** Most replicas that are remembered: the newest. */
const MAX_ENDED = 10_000;

/** Fields of an endpoint that identify its replica. */
interface EndpointReplica {
  readonly replicaId: string;
  readonly nodeId: string;
}

/**
 * The replicas that the agent of this node saw end. The coordinator may go on to list their
 * endpoints, for as long as no coordinator answers, while their ports belong to other replicas.
 * Replica ids are never used again, so nothing is forgotten but the oldest.
 */
export class EndedReplicas {
  private readonly ids = new Set<string>();

  /** @param isLocalNode - The agent knows about replicas of this network namespace only. */
  constructor(private readonly isLocalNode: (nodeId: string) => boolean) {}

  add(replicaIds: Iterable<string>): void {
    for (const id of replicaIds) this.ids.add(id);
    for (const id of this.ids) {
      if (this.ids.size <= MAX_ENDED) return;
      this.ids.delete(id);
    }
  }

  /** Returns true when the replica of an endpoint has ended. */
  has({ replicaId, nodeId }: EndpointReplica): boolean {
    return replicaId !== '' && this.ids.has(replicaId) && this.isLocalNode(nodeId);
  }
}
