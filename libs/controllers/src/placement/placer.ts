import { Rollout_Strategy as Strategy, type WorkloadSpec } from '@cloudless/api';
import type { ControlRecord, ReplicaRecord, WorkloadRecord } from '@cloudless/api/store';
import {
  WorkQueue,
  logFailure,
  type Clock,
  type Counter,
  noMeter,
  type Log,
  type Meter,
  type Random,
  type Tracer,
  type WorkResult,
  type TransientSet,
} from '@cloudless/base';
import {
  holdsResources,
  type ClusterState,
  type ClusterView,
  type RecordChange,
  type Stored,
} from '@cloudless/cluster-state';
import type { Cluster, PlacementRequest } from '@cloudless/scheduler';
import type { NodeDirectory } from '../node/node-directory.js';
import { PendingBatches, type PendingBatch } from './pending-batches.js';
import {
  decideBound,
  decideSet,
  decideWaiting,
  findNewSet,
  type NewSet,
  type PlacementDecision,
  type WaitingBatch,
} from './placement-decision.js';
import { MAX_PLACED_PER_DECISION, PlacementWriter, createContext } from './placement-writer.js';
import { createPlacementCounter } from './placement-counter.js';
import { findLeftNodes } from './place-away.js';
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
  /** Shared with the model of the scheduler, see `ClusterModelDeps`. Default: not shared. */
  readonly recordsBeingPlaced?: TransientSet<ReplicaRecord>;
  /** The waiting replicas, which the caller keeps up to date. Default: the placer does. */
  readonly pending?: PendingBatches;
}

/**
 * Most replicas that one decision refuses, as well as places; the rest of the batch follows in the
 * next decision.
 */
const MAX_DECIDED = MAX_PLACED_PER_DECISION;

/**
 * Assigns nodes to waiting replicas, highest priority first, and writes the reason for the replicas
 * that no node fits. Runs when a replica, a node or a reservation changes.
 */
export class Placer {
  private readonly queue: WorkQueue<'place'>;
  private readonly pending: PendingBatches;
  private readonly unsubscribes: (() => void)[];
  private readonly placements: Counter;
  /** True after a round with a conflict: the next round commits each workload on its own. */
  private hadConflict = false;
  /** True when something that decisions depend on has changed since the round began. */
  private hasChanged = false;

  constructor(private readonly deps: PlacerDeps) {
    this.placements = createPlacementCounter(deps.meter ?? noMeter);
    this.queue = new WorkQueue({
      clock: deps.clock,
      random: deps.random,
      metrics: { meter: deps.meter ?? noMeter, loop: 'placement' },
      handle: () => this.place(),
      onError: (_key, reason) => logFailure(deps.log, 'placement failed', reason),
      backoff: { firstMs: 20, maxMs: 1_000, jitter: 0.2 },
    });
    const pending = deps.pending ?? new PendingBatches(() => deps.state.view());
    this.pending = pending;
    this.unsubscribes = [
      deps.state.subscribe((changes) => {
        if (deps.pending === undefined) pending.apply(changes);
        if (changes.some(affectsPlacement)) this.wake();
      }),
      deps.nodes.subscribe(() => this.wake()),
    ];
    this.wake();
  }

  /** Number of waiting replicas that decisions have read, to show that the work is bounded. */
  get listedCount(): number {
    return this.pending.listedCount;
  }

  /** True while the model holds reservations of placements that are not committed yet. */
  get isPlacing(): boolean {
    return this.pending.isCommitting;
  }

  async close(): Promise<void> {
    for (const unsubscribe of this.unsubscribes) unsubscribe();
    await this.queue.stop();
  }

  private wake(): void {
    this.hasChanged = true;
    this.queue.wake('place');
  }

  private async place(): Promise<WorkResult> {
    // The change of the cluster record wakes this loop when an operator accepts the state.
    if (this.deps.state.storeRolledBack !== undefined) return { kind: 'done' };
    this.hasChanged = false;
    this.pending.beginRound();
    const writer = new PlacementWriter(
      { ...this.deps, pending: this.pending, placements: this.placements },
      this.hadConflict,
    );
    try {
      while (writer.state === 'writing' && (await this.placeNext(writer)));
    } finally {
      await writer.finish();
    }
    this.hadConflict = writer.state === 'conflict';
    // The view shows the conflicting change by now.
    return { kind: this.hadConflict ? 'again' : 'done' };
  }

  /**
   * Decides about the most urgent batch and passes the decision on to the writer.
   * @returns False when no batch is left in this round.
   */
  private async placeNext(writer: PlacementWriter): Promise<boolean> {
    await writer.waitForRoom();
    const batch = this.pending.next() ?? (await this.nextDeferred(writer));
    if (batch === undefined) return false;
    const view = this.deps.state.view();
    const workload = view.workload(batch.uid)?.value;
    const template = view.version(batch.uid, batch.version)?.template;
    if (workload === undefined || template === undefined) {
      this.pending.setAside(batch);
      return true;
    }
    const newSet = findNewSet(view, workload, batch.version);
    // The decision about a set counts its replicas in the view, so none may be in progress.
    if (newSet !== undefined && (await writer.waitForAll())) return true;
    const { decision, isComplete } = this.tryDecide(view, batch, { workload, template, newSet });
    const changes = decision.decided.filter(
      ({ replica, outcome }) => !('reason' in outcome) || outcome.reason !== replica.value.reason,
    );
    if (isComplete || changes.length === 0) this.pending.setAside(batch);
    // The reasons of further replicas do not delay the placements of other batches.
    else if (decision.refusal !== undefined) this.pending.defer(batch);
    // A refusal looks at every node: what is decided does not wait for further refusals.
    if (changes.length === 0) writer.commitWaiting();
    if (changes.length > 0)
      writer.add({ context: createContext(view, workload, decision), batch, template, changes });
    if (decision.isAtomic) await writer.waitForAll();
    return true;
  }

  /**
   * Returns a batch with further refusals to write, after the commits before, so that the decision
   * counts all waiting replicas. Undefined when something has changed since the round began: the
   * next round then decides about all batches before it writes further refusals.
   */
  private async nextDeferred(writer: PlacementWriter): Promise<PendingBatch | undefined> {
    if (this.pending.nextDeferred() === undefined) return undefined;
    await writer.waitForAll();
    return this.hasChanged ? undefined : (this.pending.next() ?? this.pending.nextDeferred());
  }

  /** Decides about a batch. A decision that fails refuses this batch alone, with the failure. */
  private tryDecide(view: ClusterView, batch: PendingBatch, subject: BatchSubject): BatchDecision {
    const { workload, template, newSet } = subject;
    try {
      return this.decide(view, batch, toPlacementRequest(workload, template), newSet);
    } catch (failure) {
      const text = failure instanceof Error ? failure.message : String(failure);
      const reason = `the scheduler cannot decide: ${text}`;
      // The reason is logged once, and again when another failure follows.
      if (!batch.hasReason(reason))
        logFailure(this.deps.log, 'placement decision failed', failure, { workloadId: batch.uid });
      const others = batch.listWithOtherReason(reason, MAX_DECIDED + 1);
      const refused = [...batch.listNominated(), ...others.slice(0, MAX_DECIDED)];
      const decided = listReplicas(view, refused).map((replica) => ({
        replica,
        outcome: { reason },
      }));
      return {
        decision: { decided, isAtomic: false, refusal: reason },
        isComplete: others.length <= MAX_DECIDED,
      };
    }
  }

  /** Decides about the first replicas of a batch, or about all when a decision concerns all. */
  private decide(
    view: ClusterView,
    batch: PendingBatch,
    request: PlacementRequest,
    newSet: NewSet | undefined,
  ): BatchDecision {
    const { cluster } = this.deps;
    if (!batch.bound && newSet === undefined) {
      const waiting: WaitingBatch = {
        size: batch.size,
        listFirst: (limit) => listReplicas(view, batch.listFirst(limit)),
        listNominated: () => listReplicas(view, batch.listNominated()),
        listWithOtherReason: (reason, limit) =>
          listReplicas(view, batch.listWithOtherReason(reason, limit)),
      };
      const control = view.control(batch.uid)?.value;
      const leftNodes = findLeftNodes(view, control, batch.version, this.deps.clock.wallTime());
      return decideWaiting(cluster, request, waiting, MAX_DECIDED, leftNodes);
    }
    const replicas = listReplicas(view, batch.listFirst());
    const decision =
      newSet === undefined
        ? decideBound(cluster, request, replicas)
        : decideSet(cluster, request, replicas, newSet);
    return { decision, isComplete: true };
  }
}

/** A decision about a batch. */
interface BatchDecision {
  readonly decision: PlacementDecision;
  /** False when a further decision has to follow about the rest of the batch. */
  readonly isComplete: boolean;
}

/** The records that a decision about a batch rests on. */
interface BatchSubject {
  readonly workload: WorkloadRecord;
  readonly template: WorkloadSpec;
  readonly newSet: NewSet | undefined;
}

function listReplicas(view: ClusterView, ids: readonly string[]): readonly Stored<ReplicaRecord>[] {
  return ids.flatMap((id) => view.replica(id) ?? []);
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
