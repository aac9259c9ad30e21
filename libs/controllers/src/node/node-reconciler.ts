import { clone, equals } from '@bufbuild/protobuf';
import { timestampFromMs } from '@bufbuild/protobuf/wkt';
import {
  Event_Category as Category,
  Event_Severity as Severity,
  NodeStatus_Phase as NodePhase,
  ReplicaStatus_Phase as Phase,
} from '@cloudless/api';
import {
  DepartureRecordSchema,
  NodeRecordSchema,
  type DepartureRecord,
  type NodeRecord,
  type ReplicaRecord,
} from '@cloudless/api/store';
import type { Clock, Log, Meter, Random, WorkQueue, WorkResult } from '@cloudless/base';
import {
  copyReplica,
  getNextOrderRevision,
  holdsResources,
  putNodeReturn,
  shareTime,
  type ClusterState,
  type EventInit,
  type RecordChange,
  type Stored,
} from '@cloudless/cluster-state';
import { commitOrReconcileAgain } from '../common/commit.js';
import { toMs } from '../common/duration.js';
import { createReconcileQueue } from '../common/reconcile-queue.js';
import { explainDeparture, toDepartureRecord } from './departures.js';
import type { NodeDirectory } from './node-directory.js';

export interface NodeReconcilerDeps {
  readonly state: ClusterState;
  readonly nodes: NodeDirectory;
  readonly clock: Clock;
  readonly random: Random;
  readonly log: Log;
  readonly meter?: Meter;
}

/**
 * Most replicas marked as lost in one commit. With a readiness guard for each replica and one
 * event, the commit stays below the 100 writes of a transaction.
 */
const MAX_LOST_PER_COMMIT = 45;
/** Shortest time between two AgentSlow events of one node, milliseconds. */
const SLOW_EVENT_INTERVAL_MS = 30_000;
/**
 * Milliseconds without a change of the node record after which the return of a node is written
 * although its session has not done so: a session writes the return at once, and again after a
 * conflict. When it takes back many replicas, each of its commits writes the node record.
 */
const SESSION_RETURN_MS = 1_000;
/** Milliseconds until the replacement brake is checked again while it holds. */
const BRAKE_RECHECK_MS = 1_000;

/** Why replicas are declared lost, for the records and for users. */
interface LossExplanation {
  readonly texts: {
    /** Why the replica does not serve. */
    readonly reason: string;
    /** Why the replica is stopped when its node is back. */
    readonly stopReason: string;
    /** What happened to the replicas, after their number. */
    readonly event: string;
  };
  /** Why the decision was made. */
  readonly why: string;
  readonly causedBy: EventInit['causedBy'];
}

/**
 * Records losses and returns of nodes: marks a lost node and its replicas as lost, and clears the
 * mark when the node returns.
 */
export class NodeReconciler {
  private readonly queue: WorkQueue<string>;
  private readonly unsubscribes: (() => void)[];
  /** Begin of the hold of the replacement brake for which an event was recorded last. */
  private reportedHoldSinceMs: number | undefined;
  /** When the last AgentSlow event of a node was recorded, until its AgentRecovered event. */
  private readonly slowReportedAtMs = new Map<string, number>();

  /**
   * Since when a lost node is ready, its session has not written the return, and its record has this
   * revision; by node.
   */
  private readonly awaitedReturns = new Map<
    string,
    { readonly sinceMs: number; readonly revision: Stored<NodeRecord>['revision'] }
  >();

  constructor(private readonly deps: NodeReconcilerDeps) {
    this.queue = createReconcileQueue(deps, {
      loop: 'node',
      keyField: 'nodeId',
      failure: 'node reconcile failed',
      handle: (nodeId) => this.reconcile(nodeId),
    });
    this.wakeAll();
    this.unsubscribes = [
      deps.nodes.subscribe((nodeId) => this.queue.wake(nodeId)),
      deps.state.subscribe((changes) => this.wakeFor(changes)),
    ];
  }

  async close(): Promise<void> {
    for (const unsubscribe of this.unsubscribes) unsubscribe();
    await this.queue.stop();
  }

  private wakeFor(changes: readonly RecordChange[]): void {
    for (const { kind, id, before, after } of changes) {
      if (kind === 'node') this.queue.wake(id);
      else if (kind === 'meta') this.wakeAll();
      else if (kind === 'replica') this.wakeForChangedLostAfter(before, after);
    }
  }

  /** Wakes the pass over a lost node when `lost_after` of one of its replicas changed. */
  private wakeForChangedLostAfter(
    before: ReplicaRecord | undefined,
    after: ReplicaRecord | undefined,
  ): void {
    if (
      before === undefined ||
      after === undefined ||
      before.lostAfter === after.lostAfter ||
      toMs(before.lostAfter) === toMs(after.lostAfter)
    )
      return;
    if (this.deps.state.view().node(after.nodeId)?.value.lost === true)
      this.queue.wake(after.nodeId);
  }

  private wakeAll(): void {
    for (const { value } of this.deps.state.view().nodes()) this.queue.wake(value.id);
  }

  /** Runs one pass over a node: compares its record with its lease. Level-triggered. */
  async reconcile(nodeId: string): Promise<WorkResult> {
    const { state, nodes } = this.deps;
    // The change of the cluster record wakes this loop when an operator accepts the state.
    if (state.storeRolledBack !== undefined) return { kind: 'done' };
    const node = state.view().node(nodeId);
    const { phase } = nodes.status(nodeId);
    if (phase !== NodePhase.READY || node?.value.lost !== true) this.awaitedReturns.delete(nodeId);
    // The events about the removal or the loss end the story of a slow agent.
    if (node === undefined || phase === NodePhase.LOST) this.slowReportedAtMs.delete(nodeId);
    if (node === undefined) return { kind: 'done' };
    const { lost, departure } = node.value;
    switch (phase) {
      case NodePhase.READY:
        if (lost) return this.awaitReturn(node);
        if (departure !== undefined) return this.commitReturn(node);
        return this.reportSlowness(nodeId);
      case NodePhase.AWAY:
        return this.commitDeparture(node);
      case NodePhase.DISCONNECTED:
        // The agent has returned and its connection broke before that was recorded.
        return departure === undefined ? { kind: 'done' } : this.commitReturn(node);
      case NodePhase.LOST:
        return this.commitLoss(node);
      case NodePhase.UNKNOWN:
        return { kind: 'done' };
    }
  }

  /**
   * Leaves the return of a lost node to the session of its agent, which knows the inventory and
   * writes what happens to the replicas in the same commit.
   */
  private awaitReturn(node: Stored<NodeRecord>): WorkResult | Promise<WorkResult> {
    const { id } = node.value;
    const now = this.deps.clock.now();
    const awaited = this.awaitedReturns.get(id);
    const sinceMs = awaited?.revision === node.revision ? awaited.sinceMs : now;
    this.awaitedReturns.set(id, { sinceMs, revision: node.revision });
    const delayMs = sinceMs + SESSION_RETURN_MS - now;
    return delayMs > 0 ? { kind: 'after', delayMs } : this.commitReturn(node);
  }

  private commitReturn(node: Stored<NodeRecord>): Promise<WorkResult> {
    const { state } = this.deps;
    return commitOrReconcileAgain(state, putNodeReturn(state.transaction(), state.view(), node));
  }

  /**
   * Records that an agent left in good order, so that the next coordinator continues its grace. Then
   * replaces the EXCLUSIVE replicas of the node as if its lease had ended without a grace: their
   * containers end by themselves when no agent renews their leases.
   */
  private async commitDeparture(node: Stored<NodeRecord>): Promise<WorkResult> {
    const { state, nodes } = this.deps;
    const { id } = node.value;
    const departure = nodes.getDeparture(id);
    if (departure === undefined) return { kind: 'done' };
    const record = toDepartureRecord(departure);
    const { departure: recorded } = node.value;
    if (recorded === undefined || !equals(DepartureRecordSchema, recorded, record)) {
      const transaction = state.transaction().event({
        severity: Severity.INFO,
        category: Category.MEMBERSHIP,
        reason: 'AgentLeft',
        message: `node ${id}: ${explainDeparture(departure)}`,
        nodeId: id,
      });
      putNode(transaction, node, { departure: record });
      return commitOrReconcileAgain(state, transaction);
    }
    const exclusive = [...state.view().replicasOn(id)].filter(
      ({ value }) =>
        holdsResources(value) && value.stopAfter !== undefined && !value.stopAfterUnconfirmed,
    );
    if (exclusive.length === 0) return { kind: 'done' };
    const leaseEndedForMs = nodes.leaseEndedForMs(id) ?? 0;
    const waitMs = ({ value }: Stored<ReplicaRecord>): number =>
      Math.max(0, toMs(value.lostAfter) - leaseEndedForMs);
    const due = exclusive.filter((replica) => waitMs(replica) === 0).slice(0, MAX_LOST_PER_COMMIT);
    if (due.length === 0) return { kind: 'after', delayMs: Math.min(...exclusive.map(waitMs)) };
    return this.commitReplicaLosses(node, due, {
      texts: {
        reason: `the agent of node ${id} left, and an EXCLUSIVE replica ends without it`,
        stopReason: `the agent of node ${id} left and the EXCLUSIVE replica was replaced`,
        event: `replaced, because the agent of node ${id} left`,
      },
      why: 'its agent left and did not return before lost_after; an EXCLUSIVE replica ends by itself without an agent',
      causedBy: state.view().lastEvent({ kind: 'node', nodeId: id }, ['AgentLeft']),
    });
  }

  /** Records one event when an agent becomes slow, and one when it recovers. */
  private async reportSlowness(nodeId: string): Promise<WorkResult> {
    const { nodes, state, clock } = this.deps;
    const { agentSlow, agentSlowReason } = nodes.status(nodeId);
    const reportedAtMs = this.slowReportedAtMs.get(nodeId);
    if (!agentSlow) {
      if (reportedAtMs === undefined) return { kind: 'done' };
      // An agent that is slow again and again has one pair of events for each interval.
      const delayMs = reportedAtMs + SLOW_EVENT_INTERVAL_MS - clock.now();
      if (delayMs > 0) return { kind: 'after', delayMs };
      this.slowReportedAtMs.delete(nodeId);
      return commitOrReconcileAgain(
        state,
        state.transaction().event({
          severity: Severity.INFO,
          category: Category.MEMBERSHIP,
          reason: 'AgentRecovered',
          message: `node ${nodeId}: the main loop of the agent turns again`,
          nodeId,
          causedBy: state.view().lastEvent({ kind: 'node', nodeId }, ['AgentSlow']),
        }),
      );
    }
    if (reportedAtMs !== undefined) return { kind: 'done' };
    this.slowReportedAtMs.set(nodeId, clock.now());
    return commitOrReconcileAgain(
      state,
      state.transaction().event({
        severity: Severity.WARNING,
        category: Category.MEMBERSHIP,
        reason: 'AgentSlow',
        message: `node ${nodeId}: ${agentSlowReason}`,
        nodeId,
      }),
    );
  }

  private async commitLoss(node: Stored<NodeRecord>): Promise<WorkResult> {
    const { state, nodes } = this.deps;
    const { id } = node.value;
    if (!node.value.lost) {
      const transaction = state.transaction();
      putNode(transaction, node, { lost: true, departure: undefined });
      const { reason } = nodes.status(id);
      transaction.event({
        severity: Severity.ERROR,
        category: Category.MEMBERSHIP,
        reason: 'NodeLost',
        message: `node ${id} is lost: ${reason}`,
        nodeId: id,
      });
      return commitOrReconcileAgain(this.deps.state, transaction);
    }
    const holders = [...state.view().replicasOn(id)].filter(({ value }) => holdsResources(value));
    if (holders.length === 0) return { kind: 'done' };
    const confirmed = node.value.lossConfirmed;
    const brake = nodes.checkReplacementBrake();
    if (brake.kind === 'holding' && !confirmed) {
      await this.reportReplacementPause(brake.sinceMs, brake.reason);
      return { kind: 'after', delayMs: BRAKE_RECHECK_MS };
    }
    const waitMs = ({ value }: Stored<ReplicaRecord>): number =>
      confirmed ? 0 : Math.max(0, toMs(value.lostAfter) - (nodes.lostForMs(id) ?? 0));
    const due = holders.filter((replica) => waitMs(replica) === 0).slice(0, MAX_LOST_PER_COMMIT);
    if (due.length === 0) return { kind: 'after', delayMs: Math.min(...holders.map(waitMs)) };
    return this.commitReplicaLosses(node, due, {
      texts: {
        reason: `node ${id} is lost`,
        stopReason: `node ${id} was lost and the replica was replaced`,
        event: `lost with node ${id}`,
      },
      why: this.explainReplacement(confirmed),
      causedBy: this.findLossEvent(id, confirmed),
    });
  }

  private commitReplicaLosses(
    node: Stored<NodeRecord>,
    due: readonly Stored<ReplicaRecord>[],
    { texts, why, causedBy }: LossExplanation,
  ): Promise<WorkResult> {
    const { state, clock } = this.deps;
    const { id } = node.value;
    const transaction = state.transaction();
    // The commit fails when the node has returned in the meantime.
    transaction.require('node', id, node);
    // One time for all: the records of lost replicas stay until their node returns.
    const lostAt = shareTime(timestampFromMs(clock.wallTime()));
    for (const replica of due) {
      const lost = {
        lost: true,
        lostAt,
        desiredRunning: false,
        ready: false,
        readySince: undefined,
        phase: Phase.FAILED,
        reason: texts.reason,
        stopReason: texts.stopReason,
        orderRevision: getNextOrderRevision(state.view(), replica.value),
      };
      transaction.updateReplica(replica, copyReplica(replica.value, lost));
    }
    transaction.event({
      severity: Severity.WARNING,
      category: Category.MEMBERSHIP,
      reason: 'ReplicasLost',
      message: `${due.length} ${due.length === 1 ? 'replica' : 'replicas'} ${texts.event}`,
      nodeId: id,
      replicaIds: due.map(({ value }) => value.id),
      decision: {
        id: `loss/${id}@${state.view().revision}`,
        why,
      },
      causedBy,
    });
    return commitOrReconcileAgain(this.deps.state, transaction);
  }

  private findLossEvent(nodeId: string, confirmed = false) {
    const reasons = confirmed ? ['NodeLost', 'NodeLossConfirmed'] : ['NodeLost'];
    return this.deps.state.view().lastEvent({ kind: 'node', nodeId }, reasons);
  }

  private explainReplacement(confirmed: boolean): string {
    return confirmed
      ? 'an operator has confirmed that the machine is dead'
      : 'the node is lost, lost_after of its replicas has passed, and the replacement brake is released';
  }

  /**
   * Records one event for each period in which the replacement brake holds, however many nodes are
   * waiting.
   */
  private async reportReplacementPause(sinceMs: number, reason: string): Promise<void> {
    if (this.reportedHoldSinceMs === sinceMs) return;
    this.reportedHoldSinceMs = sinceMs;
    this.deps.log.warn('replacement is paused', { reason });
    const transaction = this.deps.state.transaction().event({
      severity: Severity.ERROR,
      category: Category.MEMBERSHIP,
      reason: 'ReplacementHeld',
      message: `replacement is paused: ${reason}`,
    });
    await commitOrReconcileAgain(this.deps.state, transaction);
  }
}

function putNode(
  transaction: ReturnType<ClusterState['transaction']>,
  node: Stored<NodeRecord>,
  {
    departure,
    ...changes
  }: { readonly lost?: boolean; readonly departure: DepartureRecord | undefined },
): void {
  const next = Object.assign(clone(NodeRecordSchema, node.value), changes);
  if (departure === undefined) delete next.departure;
  else next.departure = departure;
  transaction.require('node', next.id, node).put('node', next.id, next);
}
