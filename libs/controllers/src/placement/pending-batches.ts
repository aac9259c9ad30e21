import type { ReplicaRecord } from '@cloudless/api/store';
import { waitsForNode, type ClusterView, type RecordChange } from '@cloudless/cluster-state';

/**
 * The waiting replicas of one workload and version, which have the same placement requirements.
 * Replicas that are bound to a node have a batch of their own.
 */
export interface PendingBatch {
  readonly key: string;
  readonly uid: string;
  readonly version: number;
  /** True when each replica may run on one given node only (mode GLOBAL). */
  readonly bound: boolean;
  readonly priority: number;
  /** Creation time of the workload, seconds since the epoch. */
  readonly createdAt: number;
  /** Changes while replicas begin and cease to wait. */
  readonly replicaIds: ReadonlySet<string>;
}

type Urgency = Pick<PendingBatch, 'key' | 'priority' | 'createdAt'>;

interface MutableBatch extends PendingBatch {
  readonly replicaIds: Set<string>;
}

/** The part of the cluster view that {@link PendingBatches} reads. */
export type PendingView = Pick<ClusterView, 'unplaced' | 'workload' | 'version'>;

/**
 * The replicas that wait for a node, in batches. State changes keep the batches up to date, so that
 * no search for the next batch scans all waiting replicas. A round returns the most urgent batch
 * until the batch is empty or set aside; a batch whose replicas start to wait during a round joins
 * the round in order of urgency.
 */
export class PendingBatches {
  private readonly batches = new Map<string, MutableBatch>();
  /** The remaining batches of the round, the most urgent last. */
  private round: MutableBatch[] = [];
  /** Replicas whose decision is being committed, which belong to no batch meanwhile. */
  private readonly beingCommitted = new Map<string, ReplicaRecord>();

  constructor(private readonly getView: () => PendingView) {
    for (const { value } of getView().unplaced()) this.add(value);
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

  /** Starts a round with all batches. */
  beginRound(): void {
    this.round = [...this.batches.values()].sort((a, b) => compareUrgency(b, a));
  }

  /**
   * Returns the most urgent batch of the round: the same batch until it is empty or set aside.
   * Undefined at the end of the round.
   */
  next(): PendingBatch | undefined {
    while (this.round.at(-1)?.replicaIds.size === 0) this.round.pop();
    return this.round.at(-1);
  }

  /**
   * Removes a batch from this round. The batch returns in this round only when another of its
   * replicas starts to wait.
   */
  setAside(batch: PendingBatch): void {
    const index = this.round.findLastIndex((other) => other === batch);
    if (index >= 0) this.round.splice(index, 1);
  }

  /** True between {@link beginCommit} and {@link endCommit} of any replica that still waits. */
  get isCommitting(): boolean {
    return this.beingCommitted.size > 0;
  }

  /** Takes replicas out of their batch while a decision about them is committed. */
  beginCommit(batch: PendingBatch, replicas: readonly ReplicaRecord[]): void {
    const ids = this.batches.get(batch.key)?.replicaIds;
    for (const replica of replicas)
      if (ids?.delete(replica.id) === true) this.beingCommitted.set(replica.id, replica);
    if (ids?.size === 0) this.batches.delete(batch.key);
  }

  /**
   * Returns the replicas of a decision to their batches after its commit, as far as they still
   * wait. Their batches do not return in this round.
   */
  endCommit(replicas: readonly ReplicaRecord[]): void {
    for (const replica of replicas) {
      if (!this.beingCommitted.delete(replica.id)) continue;
      const batch = this.batches.get(toBatchKey(replica)) ?? this.createBatch(replica);
      batch.replicaIds.add(replica.id);
    }
  }

  private add(replica: ReplicaRecord): void {
    const key = toBatchKey(replica);
    const batch = this.batches.get(key) ?? this.createBatch(replica);
    batch.replicaIds.add(replica.id);
    this.enterRound(batch);
  }

  private remove(replica: ReplicaRecord): void {
    if (this.beingCommitted.delete(replica.id)) return;
    const key = toBatchKey(replica);
    const batch = this.batches.get(key);
    batch?.replicaIds.delete(replica.id);
    if (batch?.replicaIds.size === 0) this.batches.delete(key);
  }

  private createBatch(replica: ReplicaRecord): MutableBatch {
    const { uid, version, onlyNodeId } = replica;
    const view = this.getView();
    const batch: MutableBatch = {
      key: toBatchKey(replica),
      uid,
      version,
      bound: onlyNodeId !== '',
      priority: view.version(uid, version)?.template?.priority ?? 0,
      createdAt: Number(view.workload(uid)?.value.createdAt?.seconds ?? 0n),
      replicaIds: new Set(),
    };
    this.batches.set(batch.key, batch);
    return batch;
  }

  /** Inserts a batch into the sorted round, by binary search. A batch of the round stays once. */
  private enterRound(batch: MutableBatch): void {
    let low = 0;
    let high = this.round.length;
    while (low < high) {
      const middle = (low + high) >>> 1;
      const other = this.round[middle];
      if (other !== undefined && compareUrgency(batch, other) < 0) low = middle + 1;
      else high = middle;
    }
    if (this.round[low] !== batch) this.round.splice(low, 0, batch);
  }
}

/** Orders by priority, highest first, then by age of the workload, oldest first, then by key. */
export function compareUrgency(a: Urgency, b: Urgency): number {
  return (
    b.priority - a.priority ||
    a.createdAt - b.createdAt ||
    (a.key === b.key ? 0 : a.key < b.key ? -1 : 1)
  );
}

function toBatchKey({ uid, version, onlyNodeId }: ReplicaRecord): string {
  return `${uid}/${version}/${onlyNodeId === '' ? 'any' : 'bound'}`;
}
