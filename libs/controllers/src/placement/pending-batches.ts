import { ReplicaStatus_Phase as Phase } from '@cloudless/api';
import type { ReplicaRecord } from '@cloudless/api/store';
import type { ClusterView, RecordChange } from '@cloudless/cluster-state';

/** Waiting replicas of one workload and version. They have the same placement requirements. */
export interface PendingBatch {
  readonly key: string;
  readonly uid: string;
  readonly version: number;
  /** True when each replica may run on one given node only (mode GLOBAL). */
  readonly bound: boolean;
  readonly priority: number;
  /** Creation time of the workload, seconds. */
  readonly createdAt: number;
  readonly replicaIds: ReadonlySet<string>;
}

interface MutableBatch extends PendingBatch {
  readonly replicaIds: Set<string>;
}

export type PendingView = Pick<ClusterView, 'unplaced' | 'workload' | 'version'>;

/**
 * The replicas that wait for a node, in batches, kept up to date by state changes: finding the next
 * batch does not scan all waiting replicas. A round returns the most urgent batch until it is empty
 * or set aside; replicas that start to wait during a round join it in order of urgency.
 */
export class PendingBatches {
  private readonly batches = new Map<string, MutableBatch>();
  /** The remaining batches of the round, the most urgent last. */
  private round: MutableBatch[] = [];

  constructor(private readonly view: () => PendingView) {
    for (const { value } of view().unplaced()) this.add(value);
  }

  /** Applies state changes. The view must show them already. */
  apply(changes: readonly RecordChange[]): void {
    for (const { kind, before, after } of changes) {
      if (kind !== 'replica') continue;
      const waited = before !== undefined && isWaiting(before);
      const waits = after !== undefined && isWaiting(after);
      if (waited && !waits) this.remove(before);
      else if (waits && !waited) this.add(after);
    }
  }

  /** Starts a round with all batches. */
  beginRound(): void {
    this.round = [...this.batches.values()].sort((a, b) => compareUrgency(b, a));
  }

  /**
   * The most urgent batch of the round, the same one until it is empty or set aside; undefined at
   * the end of the round.
   */
  next(): PendingBatch | undefined {
    while (this.round.at(-1)?.replicaIds.size === 0) this.round.pop();
    return this.round.at(-1);
  }

  /**
   * Removes a batch from this round. It returns in this round only when another of its replicas
   * starts to wait.
   */
  setAside(batch: PendingBatch): void {
    const index = this.round.findLastIndex((other) => other === batch);
    if (index >= 0) this.round.splice(index, 1);
  }

  private add(replica: ReplicaRecord): void {
    const key = toBatchKey(replica);
    const batch = this.batches.get(key) ?? this.createBatch(replica);
    batch.replicaIds.add(replica.id);
    this.enterRound(batch);
  }

  private remove(replica: ReplicaRecord): void {
    const key = toBatchKey(replica);
    const batch = this.batches.get(key);
    batch?.replicaIds.delete(replica.id);
    if (batch?.replicaIds.size === 0) this.batches.delete(key);
  }

  private createBatch(replica: ReplicaRecord): MutableBatch {
    const { uid, version, onlyNodeId } = replica;
    const view = this.view();
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

  /** Binary search for the position: the round is sorted. */
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

/** Orders by priority, highest first, then by age of the workload, oldest first. */
function compareUrgency(a: PendingBatch, b: PendingBatch): number {
  return (
    b.priority - a.priority ||
    a.createdAt - b.createdAt ||
    (a.key === b.key ? 0 : a.key < b.key ? -1 : 1)
  );
}

function isWaiting({ nodeId, desiredRunning, phase }: ReplicaRecord): boolean {
  return nodeId === '' && desiredRunning && phase === Phase.PENDING;
}

function toBatchKey({ uid, version, onlyNodeId }: ReplicaRecord): string {
  return `${uid}/${version}/${onlyNodeId === '' ? 'any' : 'bound'}`;
}
