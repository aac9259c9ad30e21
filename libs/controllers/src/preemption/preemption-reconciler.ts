import type { ReplicaRecord, WorkloadRecord } from '@cloudless/api/store';
import {
  WorkQueue,
  errorKindOf,
  logFailure,
  noMeter,
  sleep,
  toReplicaId,
  type Clock,
  type Counter,
  type Log,
  type Meter,
  type Random,
  type WorkResult,
} from '@cloudless/base';
import {
  copyReplica,
  holdsResources,
  type ClusterState,
  type RecordChange,
  type Stored,
  type Transaction,
} from '@cloudless/cluster-state';
import type { Cluster } from '@cloudless/scheduler';
import { isFinalRefusal } from '../common/commit.js';
import type { NodeDirectory } from '../node/node-directory.js';
import type { ReadinessTracker } from '../rollout/readiness-tracker.js';
import { PassPacing } from '../workload/pass-pacing.js';
import { isNominated } from './nominations.js';
import { addPreemption } from './preemption-commit.js';
import { decidePreemption, mayPreempt, type ReplicaPreemption } from './preemption-plan.js';
import { WaitingPreemptors, type PreemptorGroup } from './waiting-preemptors.js';

export interface PreemptionReconcilerDeps {
  readonly state: ClusterState;
  readonly nodes: NodeDirectory;
  readonly readiness: ReadinessTracker;
  readonly cluster: Cluster;
  readonly clock: Clock;
  readonly random: Random;
  readonly log: Log;
  readonly meter?: Meter;
}

/**
 * Decisions about preemption after which other work runs. On 5 000 nodes most take below 1 ms, and
 * one that permits prevent on every node about 15 ms.
 */
const DECISIONS_PER_TURN = 4;
/** Milliseconds of decisions after which other work runs, however few they were. */
const MAX_TURN_MS = 8;

/** Result of a pass over one waiting replica. */
type Step =
  | 'unchanged'
  | 'committed'
  | 'impossible'
  | 'conflict'
  /** This coordinator no longer leads, or its store has been rolled back. */
  | 'refused';

/**
 * Preempts replicas of lower priority for waiting replicas with a priority above 100 that no node
 * fits. Orders the victims to stop within the disruption budgets of their workloads, and records a
 * nomination: the node on which the waiting replica holds its resources until the victims have
 * stopped. The placer then places the replica. The nomination is moved or dropped when its node is
 * no choice any more. Level-triggered: everything that a restart must not lose is in the store.
 */
export class PreemptionReconciler {
  private readonly queue: WorkQueue<'preempt'>;
  private readonly waiting: WaitingPreemptors;
  private readonly unsubscribes: (() => void)[];
  private readonly preempted: Counter;
  /** Nodes that have changed since the nominations there were checked; undefined for all nodes. */
  private changedNodes: Set<string> | undefined;
  private readonly pacing: PassPacing;
  private readonly closing = new AbortController();
  /** For how long the decisions of this pass that led to no commit have kept the main loop. */
  private fruitlessMs = 0;
  /** Decisions of this pass since other work could run, and their milliseconds. */
  private decisionsInTurn = 0;
  private turnMs = 0;
  /** Groups about which the last decision failed, so that a failure is logged once. */
  private readonly failing = new Set<string>();
  /** Milliseconds until a budget that prevents a preemption may change by time alone. */
  private recheckInMs: number | undefined;

  constructor(private readonly deps: PreemptionReconcilerDeps) {
    const { state, clock, random, meter = noMeter } = deps;
    this.preempted = meter.counter({
      name: 'cloudless_preempted_replicas_total',
      help: 'Replicas that were ordered to stop to make room for a replica of higher priority.',
    });
    this.queue = new WorkQueue({
      clock,
      random,
      metrics: { meter, loop: 'preemption' },
      handle: () => this.runPass(),
      onError: (_key, reason) => logFailure(deps.log, 'preemption failed', reason),
      backoff: { firstMs: 20, maxMs: 5_000, jitter: 0.2 },
    });
    this.pacing = new PassPacing(clock);
    this.waiting = new WaitingPreemptors(() => state.view());
    this.unsubscribes = [
      state.subscribe((changes) => this.wakeFor(changes)),
      deps.nodes.subscribe((nodeId) => this.wakeForNode(nodeId)),
    ];
    if (!this.waiting.isEmpty) this.queue.wake('preempt');
  }

  async close(): Promise<void> {
    for (const unsubscribe of this.unsubscribes) unsubscribe();
    this.closing.abort();
    await this.queue.stop();
  }

  private wakeFor(changes: readonly RecordChange[]): void {
    this.waiting.apply(changes);
    for (const { kind, id, before, after } of changes) {
      if (kind === 'node') this.changedNodes?.add(id);
      // A placement that was on its way when a nomination was decided may take its resources.
      if (kind === 'replica' && after !== undefined && before?.nodeId !== after.nodeId)
        this.changedNodes?.add(after.nodeId);
    }
    if (!this.waiting.isEmpty && changes.some(affectsPreemption)) this.queue.wake('preempt');
  }

  private wakeForNode(nodeId: string): void {
    this.changedNodes?.add(nodeId);
    if (!this.waiting.isEmpty) this.queue.wake('preempt');
  }

  /** Runs one pass, or none while passes pause because the last one was long and in vain. */
  private async runPass(): Promise<WorkResult> {
    const waitMs = this.pacing.getWaitMs('preempt');
    if (waitMs > 0) return { kind: 'after', delayMs: waitMs };
    this.fruitlessMs = 0;
    this.decisionsInTurn = 0;
    this.turnMs = 0;
    const result = await this.reconcile();
    this.pacing.recordPass('preempt', this.fruitlessMs);
    return result;
  }

  /** Runs one pass over all waiting replicas, the highest priority first. */
  private async reconcile(): Promise<WorkResult> {
    // The change of the cluster record wakes this loop when an operator accepts the state.
    if (this.deps.state.storeRolledBack !== undefined) return { kind: 'done' };
    const changedNodes = this.changedNodes;
    this.changedNodes = new Set();
    this.recheckInMs = undefined;
    for (const group of this.waiting.list()) {
      const step = await this.reconcileGroup(group, changedNodes);
      if (step === 'refused' || this.closing.signal.aborted) return { kind: 'done' };
      if (step !== 'conflict') continue;
      // The view shows the conflicting change by now. The next pass checks the same nominations.
      this.changedNodes = undefined;
      return { kind: 'again' };
    }
    return this.recheckInMs === undefined
      ? { kind: 'done' }
      : { kind: 'after', delayMs: this.recheckInMs };
  }

  private async reconcileGroup(
    group: PreemptorGroup,
    changedNodes: ReadonlySet<string> | undefined,
  ): Promise<Step> {
    const { state } = this.deps;
    let isImpossible = false;
    for (const id of [...group.replicaIds]) {
      await this.yieldTurn();
      if (this.closing.signal.aborted) return 'unchanged';
      const replica = state.view().replica(id);
      if (replica === undefined || !group.replicaIds.has(id)) continue;
      if (isNominated(replica.value)) {
        const { nominatedNodeId } = replica.value;
        if (changedNodes !== undefined && !changedNodes.has(nominatedNodeId)) continue;
      } else if (isImpossible && replica.value.onlyNodeId === '') continue;
      const step = await this.advance(group, replica);
      if (step === 'conflict' || step === 'refused') return step;
      if (step === 'impossible') isImpossible = true;
    }
    return 'unchanged';
  }

  private async advance(group: PreemptorGroup, replica: Stored<ReplicaRecord>): Promise<Step> {
    const view = this.deps.state.view();
    const workload = view.workload(group.uid);
    if (workload === undefined || this.isBeingPlaced(replica.value)) return 'unchanged';
    if (!mayPreempt(view, workload, group.version))
      return isNominated(replica.value) ? this.dropNomination(replica) : 'impossible';
    const decided = this.decide(group, workload.value, replica.value);
    if (decided === undefined) return 'impossible';
    const { decision } = decided;
    switch (decision.kind) {
      case 'fits':
        return 'unchanged';
      case 'impossible':
        this.recheckIn(decided);
        if (!isNominated(replica.value)) return 'impossible';
        return this.dropNomination(replica);
      case 'preempt':
        if (decision.nodeId === replica.value.nominatedNodeId && decision.victims.length === 0)
          return 'unchanged';
        return this.preempt(group, replica, decided);
    }
  }

  /**
   * Decides about one replica, and measures for how long.
   * @returns Undefined when the decision fails: the failure concerns this group alone.
   */
  private decide(
    { key, uid }: PreemptorGroup,
    workload: WorkloadRecord,
    replica: ReplicaRecord,
  ): ReplicaPreemption | undefined {
    const { state, nodes, readiness, cluster, clock, log } = this.deps;
    const startedAtMs = clock.now();
    this.decisionsInTurn += 1;
    try {
      const sources = { view: state.view(), nodes, readiness, cluster, clock };
      const decided = decidePreemption(sources, workload, replica);
      const durationMs = clock.now() - startedAtMs;
      this.turnMs += durationMs;
      if (decided.decision.kind !== 'preempt') this.fruitlessMs += durationMs;
      this.failing.delete(key);
      return decided;
    } catch (reason) {
      if (!this.failing.has(key))
        logFailure(log, 'preemption decision failed', reason, { workloadId: uid });
      this.failing.add(key);
      return undefined;
    }
  }

  /** Lets other work run after some decisions, as each may look at every node. */
  private async yieldTurn(): Promise<void> {
    if (this.decisionsInTurn < DECISIONS_PER_TURN && this.turnMs < MAX_TURN_MS) return;
    this.decisionsInTurn = 0;
    this.turnMs = 0;
    await sleep(this.deps.clock, 0, this.closing.signal).catch(() => undefined);
  }

  /** Returns true while a placement of the replica is decided and reserved, but not committed. */
  private isBeingPlaced(replica: ReplicaRecord): boolean {
    const nodeId = this.deps.cluster.reservedOn(toReplicaId(replica.id));
    return nodeId !== undefined && !(isNominated(replica) && nodeId === replica.nominatedNodeId);
  }

  private recheckIn({ budgets: { recheckInMs } }: ReplicaPreemption): void {
    if (recheckInMs === undefined) return;
    this.recheckInMs = Math.min(this.recheckInMs ?? Number.POSITIVE_INFINITY, recheckInMs);
  }

  private async preempt(
    { uid, priority }: PreemptorGroup,
    replica: Stored<ReplicaRecord>,
    { decision, budgets }: ReplicaPreemption,
  ): Promise<Step> {
    const { state, log } = this.deps;
    const view = state.view();
    const workload = view.workload(uid);
    if (decision.kind !== 'preempt' || workload === undefined) return 'unchanged';
    const transaction = state.transaction().require('workload', uid, workload);
    const { stopped, isComplete } = addPreemption(transaction, {
      view,
      workload: workload.value,
      priority,
      replica,
      preemption: decision,
      budgets,
    });
    const step = await this.commit(transaction);
    if (step !== 'committed') return step;
    this.preempted.add(stopped);
    log.info('replicas preempted', {
      workloadId: uid,
      replicaId: replica.value.id,
      nodeId: decision.nodeId,
      stopped,
    });
    if (!isComplete) {
      this.changedNodes?.add(decision.nodeId);
      this.queue.wake('preempt');
    }
    return step;
  }

  private dropNomination(replica: Stored<ReplicaRecord>): Promise<Step> {
    const { nominatedNodeId } = replica.value;
    const reason = `node ${nominatedNodeId} is no choice any more`;
    return this.commit(
      this.deps.state
        .transaction()
        .updateReplica(replica, copyReplica(replica.value, { nominatedNodeId: '', reason })),
    );
  }

  private async commit(transaction: Transaction): Promise<Step> {
    try {
      await this.deps.state.commit(transaction);
      return 'committed';
    } catch (reason) {
      if (isFinalRefusal(reason)) return 'refused';
      if (errorKindOf(reason) !== 'conflict') throw reason;
      return 'conflict';
    }
  }
}

/**
 * Returns true for a change that may make room, allow an eviction or end a nomination: of a node, of
 * a workload or of a replica's node, resources or readiness.
 */
function affectsPreemption({ kind, before, after }: RecordChange): boolean {
  if (kind === 'node' || kind === 'meta' || kind === 'workload') return true;
  if (kind !== 'replica') return false;
  if (before === undefined || after === undefined) return true;
  return (
    before.nodeId !== after.nodeId ||
    before.ready !== after.ready ||
    before.reason !== after.reason ||
    before.desiredRunning !== after.desiredRunning ||
    holdsResources(before) !== holdsResources(after)
  );
}
