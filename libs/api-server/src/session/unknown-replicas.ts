import type { Order } from '@cloudless/api';
import type { Log } from '@cloudless/base';

/** A running replica of an agent that no record assigns to its node. */
export interface UnknownReplica {
  readonly nodeId: string;
  readonly replicaId: string;
  /** Uid of the workload that the agent started the replica for. */
  readonly workloadUid: string;
}

/**
 * The running orphans of all connected agents, by workload. They exist after a restore, whose state
 * does not know what was started since the backup. Start orders of EXCLUSIVE replicas wait for them,
 * so that the processes of such a workload never overlap.
 */
export class UnknownReplicas {
  /** By workload uid, then node and replica id. */
  private readonly running = new Map<string, Map<string, UnknownReplica>>();
  /** Ids of the replicas whose waiting start orders the log has named. */
  private readonly named = new Set<string>();

  constructor(private readonly log: Log) {}

  add(replica: UnknownReplica): void {
    const { workloadUid } = replica;
    const ofWorkload = this.running.get(workloadUid) ?? new Map<string, UnknownReplica>();
    this.running.set(workloadUid, ofWorkload.set(toKey(replica), replica));
  }

  /** Removes a replica that has ended, or whose agent has disconnected. */
  remove(replica: UnknownReplica): void {
    const { workloadUid } = replica;
    const ofWorkload = this.running.get(workloadUid);
    if (ofWorkload?.delete(toKey(replica)) === true && ofWorkload.size === 0)
      this.running.delete(workloadUid);
  }

  /**
   * Returns true when an order has to wait: it starts an EXCLUSIVE replica, of whose workload an
   * agent still runs an unknown replica.
   */
  delays({ workloadUid, replicaId, order }: Order): boolean {
    if (this.running.size === 0 || order.case !== 'start') return false;
    const [waitsFor] = this.running.get(workloadUid)?.values() ?? [];
    const isDelayed = waitsFor !== undefined && order.value.stopAfter !== undefined;
    if (!isDelayed) this.named.delete(replicaId);
    else if (!this.named.has(replicaId)) {
      this.named.add(replicaId);
      this.log.warn('the start of an EXCLUSIVE replica waits for the end of an unknown one', {
        replicaId,
        unknownReplicaId: waitsFor.replicaId,
        nodeId: waitsFor.nodeId,
      });
    }
    return isDelayed;
  }
}

function toKey({ nodeId, replicaId }: UnknownReplica): string {
  return `${nodeId} ${replicaId}`;
}
