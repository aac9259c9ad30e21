import type { ReplicaRecord } from '@cloudless/api/store';
import { waitsForNode, type ClusterView, type RecordChange } from '@cloudless/cluster-state';
import { compareUrgency } from '../placement/pending-batches.js';

/** Replicas with a higher priority than this may preempt others. */
export const HIGHEST_PRIORITY_WITHOUT_PREEMPTION = 100;

/** Waiting replicas of one workload and version, which need the same of a node. */
export interface PreemptorGroup {
  readonly key: string;
  readonly uid: string;
  readonly version: number;
  readonly priority: number;
  /** Creation time of the workload, seconds since the epoch. */
  readonly createdAt: number;
  /** Changes while replicas begin and cease to wait. */
  readonly replicaIds: ReadonlySet<string>;
}

interface MutableGroup extends PreemptorGroup {
  readonly replicaIds: Set<string>;
}

/** The part of the cluster view that {@link WaitingPreemptors} reads. */
export type PreemptorView = Pick<ClusterView, 'unplaced' | 'workload' | 'version'>;

/** The replicas that wait for a node and may preempt others. */
export class WaitingPreemptors {
  private readonly groups = new Map<string, MutableGroup>();

  constructor(private readonly getView: () => PreemptorView) {
    for (const { value } of getView().unplaced()) this.add(value);
  }

  get isEmpty(): boolean {
    return this.groups.size === 0;
  }

  /** Applies state changes, which the view must already show. */
  apply(changes: readonly RecordChange[]): void {
    for (const { kind, before, after } of changes) {
      if (kind !== 'replica') continue;
      const wasWaiting = before !== undefined && waitsForNode(before);
      const waits = after !== undefined && waitsForNode(after);
      if (wasWaiting && !waits) this.remove(before);
      else if (waits && !wasWaiting) this.add(after);
    }
  }

  /** Returns the groups by priority, highest first, then by age of the workload. */
  list(): readonly PreemptorGroup[] {
    return [...this.groups.values()].sort(compareUrgency);
  }

  private add(replica: ReplicaRecord): void {
    const { uid, version } = replica;
    const key = `${uid}/${version}`;
    const group = this.groups.get(key);
    if (group !== undefined) {
      group.replicaIds.add(replica.id);
      return;
    }
    const view = this.getView();
    const priority = view.version(uid, version)?.template?.priority ?? 0;
    if (priority <= HIGHEST_PRIORITY_WITHOUT_PREEMPTION) return;
    const createdAt = Number(view.workload(uid)?.value.createdAt?.seconds ?? 0n);
    this.groups.set(key, {
      key,
      uid,
      version,
      priority,
      createdAt,
      replicaIds: new Set([replica.id]),
    });
  }

  private remove({ id, uid, version }: ReplicaRecord): void {
    const key = `${uid}/${version}`;
    const group = this.groups.get(key);
    group?.replicaIds.delete(id);
    if (group?.replicaIds.size === 0) this.groups.delete(key);
  }
}
