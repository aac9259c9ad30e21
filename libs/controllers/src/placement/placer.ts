import { Rollout_Strategy as Strategy, ReplicaStatus_Phase as Phase } from '@cloudless/api';
import type {
  ControlRecord,
  NodeRecord,
  ReplicaRecord,
  WorkloadRecord,
} from '@cloudless/api/store';
import {
  WorkQueue,
  logFailure,
  errorKindOf,
  type Clock,
  type Counter,
  noMeter,
  noTracer,
  type Log,
  type Meter,
  type Random,
  type Tracer,
  type WorkResult,
} from '@cloudless/base';
import {
  copyReplica,
  holdsResources,
  type ClusterState,
  type ClusterView,
  type RecordChange,
  type Stored,
} from '@cloudless/cluster-state';
import type { Cluster, PlacementRequest } from '@cloudless/scheduler';
import { isFinalRefusal } from '../common/commit.js';
import type { NodeDirectory } from '../node/node-directory.js';
import { PendingBatches, type PendingBatch } from './pending-batches.js';
import {
  decideAny,
  decideBound,
  decideSet,
  findNewSet,
  type ReplicaDecision,
  type PlacementDecision,
} from './placement-decision.js';
import {
  createPlacedEvent,
  createUnplacedEvent,
  type DecisionFacts,
  type PlacedReplica,
} from './placement-events.js';
import { toPlacementRequest } from './scheduler-input.js';

export interface PlacerDeps {
  readonly state: ClusterState;
  readonly nodes: NodeDirectory;
  readonly cluster: Cluster;
  readonly clock: Clock;
  readonly random: Random;
  readonly log: Log;
  readonly meter?: Meter;
  readonly tracer?: Tracer;
}

/**
 * Most replicas placed in one commit. Each adds up to two conditions, for the replica and for its
 * node, to the at most 100 conditions of a transaction; a larger commit would only make a conflict
 * more expensive.
 */
const MAX_PLACED_PER_COMMIT = 45;

/**
 * Assigns nodes to waiting replicas, highest priority first, and writes the reason for the replicas
 * that no node fits. Runs when a replica, a node or a reservation changes.
 */
export class Placer {
  private readonly queue: WorkQueue<'place'>;
  private readonly pending: PendingBatches;
  private readonly unsubscribes: (() => void)[];
  private readonly placements: Counter;

  constructor(private readonly deps: PlacerDeps) {
    this.placements = (deps.meter ?? noMeter).counter({
      name: 'cloudless_placements_total',
      help: 'Replicas that the scheduler decided about, by result: placed, or unplaced when no node fits.',
      labels: ['result'],
    });
    this.queue = new WorkQueue({
      clock: deps.clock,
      random: deps.random,
      metrics: { meter: deps.meter ?? noMeter, loop: 'placement' },
      handle: () => this.place(),
      onError: (_key, reason) => logFailure(deps.log, 'placement failed', reason),
      backoff: { firstMs: 20, maxMs: 1_000, jitter: 0.2 },
    });
    this.pending = new PendingBatches(() => deps.state.view());
    this.unsubscribes = [
      deps.state.subscribe((changes) => {
        this.pending.apply(changes);
        if (changes.some(affectsPlacement)) this.queue.wake('place');
      }),
      deps.nodes.subscribe(() => this.queue.wake('place')),
    ];
    this.queue.wake('place');
  }

  async close(): Promise<void> {
    for (const unsubscribe of this.unsubscribes) unsubscribe();
    await this.queue.stop();
  }

  private async place(): Promise<WorkResult> {
    // The change of the cluster record wakes this loop when an operator accepts the state.
    if (this.deps.state.storeRolledBack !== undefined) return { kind: 'done' };
    this.pending.beginRound();
    for (let batch = this.pending.next(); batch !== undefined; batch = this.pending.next()) {
      const result = await this.placeTraced(batch);
      // The view shows the conflicting change by now.
      if (result === 'conflict') return { kind: 'again' };
      if (result === 'refused') return { kind: 'done' };
      if (result === 'unchanged') this.pending.setAside(batch);
    }
    return { kind: 'done' };
  }

  private placeTraced(batch: PendingBatch): Promise<BatchResult> {
    const { tracer = noTracer } = this.deps;
    const attributes = { workloadId: batch.uid, replicas: batch.replicaIds.size };
    return tracer.follow(batch.uid, 'place replicas', attributes, () => this.placeBatch(batch));
  }

  private async placeBatch(batch: PendingBatch): Promise<BatchResult> {
    const view = this.deps.state.view();
    const workload = view.workload(batch.uid)?.value;
    const template = view.version(batch.uid, batch.version)?.template;
    if (workload === undefined || template === undefined) return 'unchanged';
    const replicas = [...batch.replicaIds].flatMap((id) => view.replica(id) ?? []);
    replicas.sort((a, b) => Number(a.value.sequence - b.value.sequence));
    const decision = this.decide(
      view,
      batch,
      workload,
      toPlacementRequest(workload, template),
      replicas,
    );
    const changes = decision.decided.filter(
      ({ replica, outcome }) => !('reason' in outcome) || outcome.reason !== replica.value.reason,
    );
    const context = createContext(view, workload, decision);
    const limit = decision.isAtomic ? changes.length : MAX_PLACED_PER_COMMIT;
    for (let from = 0; from < limit && from < changes.length; from += MAX_PLACED_PER_COMMIT) {
      const result = await this.commit(context, changes.slice(from, from + MAX_PLACED_PER_COMMIT));
      if (result !== 'committed') return result;
    }
    return changes.length === 0 ? 'unchanged' : 'committed';
  }

  private decide(
    view: ClusterView,
    { bound, version }: PendingBatch,
    workload: WorkloadRecord,
    request: PlacementRequest,
    replicas: readonly Stored<ReplicaRecord>[],
  ): PlacementDecision {
    const { cluster } = this.deps;
    if (bound) return decideBound(cluster, request, replicas);
    const newSet = findNewSet(view, workload, version);
    if (newSet !== undefined) return decideSet(cluster, request, replicas, newSet);
    return decideAny(cluster, request, replicas, MAX_PLACED_PER_COMMIT);
  }

  private async commit(
    context: PlacementContext,
    changes: readonly ReplicaDecision[],
  ): Promise<BatchResult> {
    const { state, log } = this.deps;
    const { view, workload, refusal } = context;
    const transaction = state.transaction();
    const placed: PlacedReplica[] = [];
    const refused: ReplicaRecord[] = [];
    for (const { replica, outcome } of changes) {
      transaction.updateReplica(replica, applyOutcome(replica.value, outcome, view.revision));
      if ('reason' in outcome) refused.push(replica.value);
      else placed.push({ ...outcome, replica: replica.value });
    }
    for (const nodeId of new Set(placed.map(({ nodeId }) => nodeId))) {
      // A node that was cordoned, changed or removed since the decision may no longer fit.
      const node = context.nodes.get(nodeId);
      if (node !== undefined) transaction.require('node', nodeId, node);
    }
    if (placed.length > 0) transaction.event(createPlacedEvent(context, placed));
    if (refused.length > 0) transaction.event(createUnplacedEvent(context, refused, refusal));
    try {
      await state.commit(transaction);
    } catch (reason) {
      if (isFinalRefusal(reason)) return 'refused';
      if (errorKindOf(reason) === 'conflict') return 'conflict';
      throw reason;
    }
    this.placements.add(placed.length, { result: 'placed' });
    this.placements.add(refused.length, { result: 'unplaced' });
    log.info('replicas placed', {
      workloadId: workload.uid,
      placed: placed.length,
      unplaced: refused.length,
    });
    return 'committed';
  }
}

/** Input that all commits of one decision share. */
interface PlacementContext extends DecisionFacts {
  readonly view: ClusterView;
  /** The chosen nodes as of the decision: the view changes with each commit. */
  readonly nodes: ReadonlyMap<string, Stored<NodeRecord>>;
  readonly refusal: string;
}

function createContext(
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
    decisionId: `schedule/${workload.uid}@${view.revision}`,
  };
}

/**
 * Result of one decision for a batch: `unchanged` when every replica has its node or its reason
 * already; `refused` when this coordinator no longer leads or its store has been rolled back.
 */
type BatchResult = 'committed' | 'unchanged' | 'conflict' | 'refused';

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

function affectsPlacement({ kind, before, after }: RecordChange): boolean {
  if (kind === 'node' || kind === 'meta') return true;
  if (kind === 'workload') return isSetSizeChange(before, after);
  if (kind === 'control') return isActiveSetChange(before, after);
  if (kind !== 'replica') return false;
  if (before === undefined || after === undefined) return true;
  return (
    before.nodeId !== after.nodeId ||
    before.desiredRunning !== after.desiredRunning ||
    holdsResources(before) !== holdsResources(after)
  );
}

/**
 * Returns true for a change of the size of a blue/green set: the change may complete a set that
 * waits to be placed as a whole.
 */
function isSetSizeChange(
  before: WorkloadRecord | undefined,
  after: WorkloadRecord | undefined,
): boolean {
  const isBlueGreen = after?.spec?.rollout?.strategy === Strategy.BLUE_GREEN;
  return isBlueGreen && before?.spec?.replicas !== after.spec?.replicas;
}

/** Returns true for a change after which another version, or none, is placed as a whole. */
function isActiveSetChange(
  before: ControlRecord | undefined,
  after: ControlRecord | undefined,
): boolean {
  return (
    before?.activeVersion !== after?.activeVersion ||
    before?.rollout?.strategy !== after?.rollout?.strategy
  );
}
