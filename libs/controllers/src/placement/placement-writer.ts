import { ReplicaStatus_Phase as Phase, type WorkloadSpec } from '@cloudless/api';
import type { NodeRecord, ReplicaRecord, WorkloadRecord } from '@cloudless/api/store';
import {
  errorKindOf,
  noTracer,
  toNodeId,
  toReplicaId,
  type Counter,
  type Log,
  type Tracer,
  type TransientSet,
} from '@cloudless/base';
import {
  copyReplica,
  type ClusterState,
  type ClusterView,
  type Stored,
} from '@cloudless/cluster-state';
import type { Cluster, ReplicaOnNode } from '@cloudless/scheduler';
import { isFinalRefusal } from '../common/commit.js';
import { refreshReservation, reservePlacements } from './cluster-model.js';
import type { PendingBatch, PendingBatches } from './pending-batches.js';
import type { PlacementDecision, ReplicaDecision } from './placement-decision.js';
import {
  createPlacedEvent,
  createUnplacedEvent,
  toDecisionId,
  type DecisionFacts,
  type PlacedReplica,
} from './placement-events.js';

/**
 * Most replicas placed in one commit. Each adds up to two conditions, for the replica and for its
 * node, and up to two writes, for the replica and for an event of its workload; a transaction
 * allows 100 of each.
 */
export const MAX_PLACED_PER_COMMIT = 45;
/** Most replicas that one decision places, for several commits. */
export const MAX_PLACED_PER_DECISION = 8 * MAX_PLACED_PER_COMMIT;
/**
 * Most commits in progress at the same time. More than one only helps when the store takes longer to
 * confirm a commit than the scheduler to make the next decision.
 */
const MAX_COMMITS_IN_PROGRESS = 8;

/** A decision about waiting replicas of one workload. */
export interface PlacementPart {
  readonly context: PlacementContext;
  readonly batch: PendingBatch;
  /** The template of the replicas. */
  readonly template: WorkloadSpec;
  readonly changes: readonly ReplicaDecision[];
}

/** Input that all commits of one decision share. */
export interface PlacementContext extends DecisionFacts {
  readonly view: ClusterView;
  /** The chosen nodes as of the decision: the view changes with each commit. */
  readonly nodes: ReadonlyMap<string, Stored<NodeRecord>>;
  readonly refusal: string;
}

/** Creates the context of a decision, on the view on which the decision was made. */
export function createContext(
  view: ClusterView,
  workload: WorkloadRecord,
  { decided, refusal = '' }: PlacementDecision,
): PlacementContext {
  const nodes = new Map<string, Stored<NodeRecord>>();
  for (const { outcome } of decided) {
    const node = 'reason' in outcome ? undefined : view.node(outcome.nodeId);
    if (node !== undefined) nodes.set(node.value.id, node);
  }
  return {
    view,
    workload,
    nodes,
    refusal,
    decisionId: toDecisionId(view, workload),
  };
}

export interface PlacementWriterDeps {
  readonly state: ClusterState;
  readonly cluster: Cluster;
  readonly log: Log;
  readonly tracer?: Tracer;
  readonly pending: PendingBatches;
  readonly placements: Counter;
  /** The placed replicas of the commits in progress, which are reserved. Default: not recorded. */
  readonly recordsBeingPlaced?: TransientSet<ReplicaRecord>;
}

/**
 * Commits the decisions of one round, several commits at a time. A commit holds decisions about
 * several workloads. What is about to be committed is reserved in the model of the scheduler, so
 * that the next decision can be made before the commit ends; a commit that fails gives it back.
 */
export class PlacementWriter {
  /** Decisions that are reserved and not committed yet, oldest first. */
  private waiting: PlacementPart[] = [];
  private waitingCount = 0;
  /** The chosen nodes of the waiting decisions, as of these decisions. */
  private readonly waitingNodes = new Map<string, bigint>();
  /** Full commits that wait for others to end, oldest first. */
  private readonly ready: (readonly PlacementPart[])[] = [];
  private readonly inProgress = new Set<Promise<void>>();
  /** What the commits of this round have written, by workload. */
  private readonly counts = new Map<string, PartCounts>();
  /** The first error that is neither a conflict nor final. */
  private failure: { readonly reason: unknown } | undefined;
  private current: 'writing' | 'conflict' | 'refused' = 'writing';

  /** @param separately - True to commit the decisions about each workload on their own. */
  constructor(
    private readonly deps: PlacementWriterDeps,
    private readonly separately: boolean,
  ) {}

  /**
   * `conflict` when a commit met a change after its decision; `refused` when this coordinator no
   * longer leads, or its store has been rolled back or cannot be written. Then no further decision
   * is committed.
   */
  get state(): 'writing' | 'conflict' | 'refused' {
    return this.current;
  }

  /** Reserves what a decision places, and starts the commits that are full. */
  add(part: PlacementPart): void {
    const { cluster, pending } = this.deps;
    const { context, batch, template, changes } = part;
    pending.beginCommit(
      batch,
      changes.map(({ replica }) => replica.value),
    );
    const placed = changes.flatMap(({ replica, outcome }): readonly ReplicaOnNode[] =>
      'reason' in outcome
        ? []
        : [{ replicaId: toReplicaId(replica.value.id), nodeId: toNodeId(outcome.nodeId) }],
    );
    reservePlacements(cluster, { workload: context.workload, template }, placed);
    for (let from = 0; from < changes.length; from += MAX_PLACED_PER_COMMIT)
      this.enqueue({ ...part, changes: changes.slice(from, from + MAX_PLACED_PER_COMMIT) });
  }

  /** Resolves when the next full commit can start at once. */
  async waitForRoom(): Promise<void> {
    while (this.inProgress.size >= MAX_COMMITS_IN_PROGRESS) await Promise.race(this.inProgress);
  }

  /**
   * Commits what waits, and resolves at the end of all commits.
   * @returns False when nothing had to be committed.
   */
  async waitForAll(): Promise<boolean> {
    this.commitWaiting();
    if (this.inProgress.size === 0) return false;
    while (this.inProgress.size > 0) await Promise.all(this.inProgress);
    return true;
  }

  /**
   * Ends the round. Resolves at the end of all commits.
   * @throws the first error of a commit that is neither a conflict nor final.
   */
  async finish(): Promise<void> {
    await this.waitForAll();
    this.logCounts();
    if (this.failure !== undefined) throw this.failure.reason;
  }

  private enqueue(part: PlacementPart): void {
    const isFull = this.waitingCount + part.changes.length > MAX_PLACED_PER_COMMIT;
    if (isFull || this.separately || this.hasOtherNodes(part)) this.commitWaiting();
    this.waiting.push(part);
    this.waitingCount += part.changes.length;
    for (const { outcome } of part.changes) {
      const node = findNode(part, outcome);
      if (node !== undefined) this.waitingNodes.set(node.value.id, node.revision);
    }
  }

  /**
   * Returns true when a node has changed between the waiting decisions and a new one: one commit can
   * require only one revision of a node.
   */
  private hasOtherNodes(part: PlacementPart): boolean {
    if (this.waiting.length === 0) return false;
    for (const { outcome } of part.changes) {
      const node = findNode(part, outcome);
      if (node === undefined) continue;
      if ((this.waitingNodes.get(node.value.id) ?? node.revision) !== node.revision) return true;
    }
    return false;
  }

  /**
   * Adds no more decisions to the commit of the waiting decisions, and starts it if there is room.
   */
  commitWaiting(): void {
    if (this.waiting.length > 0) this.ready.push(this.waiting);
    this.waiting = [];
    this.waitingCount = 0;
    this.waitingNodes.clear();
    this.startCommits();
  }

  /** Starts as many commits as may be in progress, or gives them up when this round has failed. */
  private startCommits(): void {
    while (this.inProgress.size < MAX_COMMITS_IN_PROGRESS || this.current !== 'writing') {
      const parts = this.ready.shift();
      if (parts === undefined) return;
      if (this.current === 'writing') this.start(parts);
      else this.giveUp(parts);
    }
  }

  private start(parts: readonly PlacementPart[]): void {
    const running = this.commitTraced(parts).finally(() => {
      this.inProgress.delete(running);
      this.startCommits();
    });
    this.inProgress.add(running);
  }

  /** Commits decisions in a span for each workload; the spans of the commit belong to the first. */
  private async commitTraced(parts: readonly PlacementPart[]): Promise<void> {
    const { tracer = noTracer } = this.deps;
    let commit: Promise<void> | undefined;
    const follow = ({ batch, changes }: PlacementPart): Promise<void> =>
      tracer.follow(
        batch.uid,
        'place replicas',
        { workloadId: batch.uid, replicas: changes.length },
        () => (commit ??= this.commit(parts)),
      );
    await Promise.all(parts.map(follow));
  }

  /** Never rejects. */
  private async commit(parts: readonly PlacementPart[]): Promise<void> {
    const { state, pending, recordsBeingPlaced } = this.deps;
    const placed: ReplicaRecord[] = [];
    try {
      const transaction = state.transaction();
      const counts = parts.map((part) => addPart(transaction, part, placed));
      for (const record of placed) recordsBeingPlaced?.add(record);
      await state.commit(transaction);
      for (const part of parts) pending.endCommit(part.changes.map(({ replica }) => replica.value));
      for (const count of counts) this.record(count);
    } catch (reason) {
      this.giveUp(parts);
      if (isFinalRefusal(reason)) this.current = 'refused';
      else if (errorKindOf(reason) === 'conflict') {
        if (this.current === 'writing') this.current = 'conflict';
      } else {
        this.current = 'refused';
        this.failure ??= { reason };
      }
    } finally {
      for (const record of placed) recordsBeingPlaced?.delete(record);
    }
  }

  private record({ workloadId, placed, unplaced }: PartCounts): void {
    const { placements } = this.deps;
    placements.add(placed, { result: 'placed' });
    placements.add(unplaced, { result: 'unplaced' });
    const before = this.counts.get(workloadId);
    this.counts.set(workloadId, {
      workloadId,
      placed: placed + (before?.placed ?? 0),
      unplaced: unplaced + (before?.unplaced ?? 0),
    });
  }

  /** Logs what was committed, one line for each workload. */
  private logCounts(): void {
    for (const counts of this.counts.values()) this.deps.log.info('replicas placed', { ...counts });
    this.counts.clear();
  }

  /** Gives back what was reserved for decisions that are not committed. */
  private giveUp(parts: readonly PlacementPart[]): void {
    const { state, cluster, pending } = this.deps;
    for (const { changes } of parts) {
      for (const { replica } of changes)
        refreshReservation(cluster, state.view(), replica.value.id);
      pending.endCommit(changes.map(({ replica }) => replica.value));
    }
  }
}

interface PartCounts {
  readonly workloadId: string;
  readonly placed: number;
  readonly unplaced: number;
}

/** Returns the chosen node as of the decision; undefined for a refusal. */
function findNode(
  { context }: PlacementPart,
  outcome: ReplicaDecision['outcome'],
): Stored<NodeRecord> | undefined {
  return 'reason' in outcome ? undefined : context.nodes.get(outcome.nodeId);
}

/**
 * Adds a decision, its conditions and its events to a transaction.
 * @param written - Gets the new records of the replicas that are placed.
 */
function addPart(
  transaction: ReturnType<ClusterState['transaction']>,
  { context, changes }: PlacementPart,
  written: ReplicaRecord[],
): PartCounts {
  const { view, nodes, refusal, workload } = context;
  const placed: PlacedReplica[] = [];
  const refused: ReplicaRecord[] = [];
  for (const { replica, outcome } of changes) {
    const next = applyOutcome(replica.value, outcome, view.revision);
    transaction.updateReplica(replica, next);
    if ('reason' in outcome) {
      refused.push(replica.value);
      continue;
    }
    written.push(next);
    placed.push({ replica: replica.value, nodeId: outcome.nodeId, score: outcome.score });
  }
  for (const nodeId of new Set(placed.map(({ nodeId }) => nodeId))) {
    // A node that was cordoned, changed or removed since the decision may no longer fit.
    const node = nodes.get(nodeId);
    if (node !== undefined) transaction.require('node', nodeId, node);
  }
  if (placed.length > 0) transaction.event(createPlacedEvent(context, placed));
  if (refused.length > 0) transaction.event(createUnplacedEvent(context, refused, refusal));
  return { workloadId: workload.uid, placed: placed.length, unplaced: refused.length };
}

/** Returns a copy of the replica with its node, or with the reason why no node fits. */
function applyOutcome(
  replica: ReplicaRecord,
  outcome: ReplicaDecision['outcome'],
  revision: bigint,
): ReplicaRecord {
  if ('reason' in outcome) return copyReplica(replica, { reason: outcome.reason });
  return copyReplica(replica, {
    nodeId: outcome.nodeId,
    nominatedNodeId: '',
    phase: Phase.ASSIGNED,
    reason: '',
    orderRevision: revision,
  });
}
