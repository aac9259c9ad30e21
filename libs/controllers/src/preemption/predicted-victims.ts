import type { WorkloadRecord } from '@cloudless/api/store';
import { formatReplicaCount } from '@cloudless/rollout';

/** Most nodes and workloads that a sentence names. */
const MAX_NAMED = 5;

/** Replicas that would be preempted, by node and workload. */
export class PredictedVictims {
  private readonly counts = new Map<string, { nodeId: string; uid: string; replicas: number }>();

  add(nodeId: string, uid: string): void {
    const key = `${nodeId}/${uid}`;
    const entry = this.counts.get(key) ?? { nodeId, uid, replicas: 0 };
    entry.replicas += 1;
    this.counts.set(key, entry);
  }

  /** Number of replicas of each workload, by its uid. */
  get byWorkload(): ReadonlyMap<string, number> {
    const counts = new Map<string, number>();
    for (const { uid, replicas } of this.counts.values())
      counts.set(uid, (counts.get(uid) ?? 0) + replicas);
    return counts;
  }

  /** Number of replicas. */
  get count(): number {
    return [...this.counts.values()].reduce((sum, { replicas }) => sum + replicas, 0);
  }

  /**
   * Formats the replicas as a sentence: `would preempt 2 replicas of default/batch on n3`. Empty for
   * none.
   */
  describe(
    findWorkload: (uid: string) => Pick<WorkloadRecord, 'namespace' | 'name'> | undefined,
  ): string {
    const entries = [...this.counts.values()];
    if (entries.length === 0) return '';
    const phrases = entries.slice(0, MAX_NAMED).map(({ nodeId, uid, replicas }) => {
      const workload = findWorkload(uid);
      const name = workload === undefined ? uid : `${workload.namespace}/${workload.name}`;
      return `${formatReplicaCount(replicas)} of ${name} on ${nodeId}`;
    });
    const more = entries.length > MAX_NAMED ? `, and ${entries.length - MAX_NAMED} more` : '';
    return `would preempt ${phrases.join(', ')}${more}`;
  }
}
