import type { ReplicaRecord } from '@cloudless/api/store';
import { findFirst } from '@cloudless/base';
import { waitsForNode, type ClusterView, type RecordChange } from '@cloudless/cluster-state';
import { WaitingReplicas } from './waiting-replicas.js';

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
  /** Number of replicas without a decision that is being committed. */
  readonly size: number;
  /** Returns the ids of the first replicas by sequence number. Default: all. */
  listFirst(limit?: number): readonly string[];
  /** Returns the ids of all nominated replicas, by sequence number. */
  listNominated(): readonly string[];
  /** Returns the ids of the first replicas without a nomination whose reason differs. */
  listWithOtherReason(reason: string, limit: number): readonly string[];
  /** Returns true when the record of a replica without a nomination names the reason. */
  hasReason(reason: string): boolean;
}

type Urgency = Pick<PendingBatch, 'key' | 'priority' | 'createdAt'>;

class Batch implements PendingBatch {
  readonly waiting = new WaitingReplicas();
  /** Number of the waiting replicas whose decision is being committed. */
  committing = 0;

  constructor(
    readonly key: string,
    private readonly facts: Pick<
      PendingBatch,
      'uid' | 'version' | 'bound' | 'priority' | 'createdAt'
    >,
    private readonly isCommitting: (id: string) => boolean,
  ) {}

  get uid(): string {
    return this.facts.uid;
  }
  get version(): number {
    return this.facts.version;
  }
  get bound(): boolean {
    return this.facts.bound;
  }
  get priority(): number {
    return this.facts.priority;
  }
  get createdAt(): number {
    return this.facts.createdAt;
  }
  get size(): number {
    return this.waiting.size - this.committing;
  }

  listFirst(limit = Number.POSITIVE_INFINITY): readonly string[] {
    return this.waiting.listFirst(limit, this.isCommitting);
  }
  listNominated(): readonly string[] {
    return this.waiting.listNominated(this.isCommitting);
  }
  listWithOtherReason(reason: string, limit: number): readonly string[] {
    return this.waiting.listWithOtherReason(reason, limit, this.isCommitting);
  }
  hasReason(reason: string): boolean {
    return this.waiting.hasReason(reason);
  }
}

/** The part of the cluster view that {@link PendingBatches} reads. */
export type PendingView = Pick<ClusterView, 'unplaced' | 'workload' | 'version'>;

/**
 * The replicas that wait for a node, in batches. State changes keep the batches up to date, so that
 * no search for the next batch scans all waiting replicas. A round returns the most urgent batch
 * until the batch is empty or set aside; a batch whose replicas start to wait during a round joins
 * the round in order of urgency. A deferred batch follows after all others.
 */
export class PendingBatches {
  private readonly batches = new Map<string, Batch>();
  /** The remaining batches of the round, the most urgent last. */
  private round: Batch[] = [];
  /** Batches of the round that follow after all others, the first to follow first. */
  private readonly deferred = new Set<PendingBatch>();
  /** Replicas whose decision is being committed, which no list of their batch contains meanwhile. */
  private readonly beingCommitted = new Set<string>();
  private readonly isBeingCommitted = (id: string): boolean => this.beingCommitted.has(id);

  constructor(private readonly getView: () => PendingView) {
    for (const { value } of getView().unplaced()) this.add(value);
  }

  /** Number of replicas that lists of the present batches have read, to show the work of decisions. */
  get listedCount(): number {
    let sum = 0;
    for (const { waiting } of this.batches.values()) sum += waiting.listedCount;
    return sum;
  }

  /** Applies state changes, which the view must already show. */
  apply(changes: readonly RecordChange[]): void {
    for (const { kind, before, after } of changes) {
      if (kind !== 'replica') continue;
      const wasWaiting = before !== undefined && waitsForNode(before);
      const waits = after !== undefined && waitsForNode(after);
      if (wasWaiting && waits) this.replace(before, after);
      else if (wasWaiting) this.remove(before);
      else if (waits) this.add(after);
    }
  }

  /** Starts a round with all batches. */
  beginRound(): void {
    this.round = [...this.batches.values()].sort((a, b) => compareUrgency(b, a));
    this.deferred.clear();
  }

  /**
   * Returns the most urgent batch of the round: the same batch until it is empty, set aside or
   * deferred. Undefined when only deferred batches are left.
   */
  next(): PendingBatch | undefined {
    while (this.round.at(-1)?.size === 0) this.round.pop();
    return this.round.at(-1);
  }

  /** Returns the deferred batch that follows when {@link next} returns none. */
  nextDeferred(): PendingBatch | undefined {
    for (const batch of this.deferred) {
      if (batch.size > 0) return batch;
      this.deferred.delete(batch);
    }
    return undefined;
  }

  /**
   * Removes a batch from this round. The batch returns in this round only when another of its
   * replicas starts to wait.
   */
  setAside(batch: PendingBatch): void {
    const index = this.round.findLastIndex((other) => other === batch);
    if (index >= 0) this.round.splice(index, 1);
    this.deferred.delete(batch);
  }

  /** Lets all other batches of the round come before the rest of a batch. */
  defer(batch: PendingBatch): void {
    this.setAside(batch);
    this.deferred.add(batch);
  }

  /** True between {@link beginCommit} and {@link endCommit} of any replica that still waits. */
  get isCommitting(): boolean {
    return this.beingCommitted.size > 0;
  }

  /**
   * Returns true while replicas wait that come before new replicas of a workload, or before its
   * waiting replicas: those of a higher priority, or of the same priority and of a workload that is
   * not younger. A replica also waits while the decision about it is being committed, because that
   * may be a refusal, after which the replica may preempt others.
   */
  hasAsUrgent({ priority, createdAt }: Pick<PendingBatch, 'priority' | 'createdAt'>): boolean {
    for (const batch of this.batches.values())
      if (
        batch.priority > priority ||
        (batch.priority === priority && batch.createdAt <= createdAt)
      )
        return true;
    return false;
  }

  /** Takes replicas out of the lists of their batch while a decision about them is committed. */
  beginCommit({ key }: PendingBatch, replicas: readonly ReplicaRecord[]): void {
    const batch = this.batches.get(key);
    if (batch === undefined) return;
    for (const replica of replicas) {
      if (this.beingCommitted.has(replica.id) || !batch.waiting.has(replica)) continue;
      this.beingCommitted.add(replica.id);
      batch.committing += 1;
    }
  }

  /**
   * Returns the replicas of a decision to their batches after its commit, as far as they still
   * wait. A batch that was empty meanwhile does not return in this round.
   */
  endCommit(replicas: readonly ReplicaRecord[]): void {
    for (const replica of replicas) this.endCommitOf(replica);
  }

  private add(replica: ReplicaRecord): void {
    const key = toBatchKey(replica);
    const batch = this.batches.get(key) ?? this.createBatch(replica);
    batch.waiting.add(replica);
    this.enterRound(batch);
  }

  private remove(replica: ReplicaRecord): void {
    const batch = this.batches.get(toBatchKey(replica));
    this.endCommitOf(replica);
    batch?.waiting.delete(replica);
    if (batch?.waiting.size === 0) this.batches.delete(batch.key);
  }

  /** Takes the new record of a replica that waited before, whose reason or nomination may differ. */
  private replace(before: ReplicaRecord, after: ReplicaRecord): void {
    const { waiting } = this.batches.get(toBatchKey(before)) ?? {};
    if (waiting?.delete(before) === true) waiting.add(after);
  }

  private endCommitOf(replica: ReplicaRecord): void {
    if (!this.beingCommitted.delete(replica.id)) return;
    const batch = this.batches.get(toBatchKey(replica));
    if (batch !== undefined) batch.committing -= 1;
  }

  private createBatch(replica: ReplicaRecord): Batch {
    const { uid, version, onlyNodeId } = replica;
    const view = this.getView();
    const batch = new Batch(
      toBatchKey(replica),
      {
        uid,
        version,
        bound: onlyNodeId !== '',
        priority: view.version(uid, version)?.template?.priority ?? 0,
        createdAt: Number(view.workload(uid)?.value.createdAt?.seconds ?? 0n),
      },
      this.isBeingCommitted,
    );
    this.batches.set(batch.key, batch);
    return batch;
  }

  /** Inserts a batch into the sorted round. A batch of the round stays once. */
  private enterRound(batch: Batch): void {
    const index = findFirst(this.round, (other) => compareUrgency(batch, other) >= 0);
    if (this.round[index] !== batch) this.round.splice(index, 0, batch);
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
