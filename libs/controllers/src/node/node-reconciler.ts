import { clone } from '@bufbuild/protobuf';
import { timestampFromMs } from '@bufbuild/protobuf/wkt';
import {
  Event_Category as Category,
  Event_Severity as Severity,
  NodeStatus_Phase as NodePhase,
  ReplicaStatus_Phase as Phase,
} from '@cloudless/api';
import { NodeRecordSchema, type NodeRecord, type ReplicaRecord } from '@cloudless/api/store';
import {
  WorkQueue,
  logFailure,
  type Clock,
  noMeter,
  type Log,
  type Meter,
  type Random,
  type WorkResult,
} from '@cloudless/base';
import {
  copyReplica,
  holdsResources,
  putNodeReturn,
  type ClusterState,
  type RecordChange,
  type Stored,
} from '@cloudless/cluster-state';
import { commitOrReconcileAgain } from '../common/commit.js';
import { toMs } from '../common/duration.js';
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
/** Milliseconds until the replacement brake is checked again while it holds. */
const BRAKE_RECHECK_MS = 1_000;

/**
 * Records losses and returns of nodes: marks a lost node and its replicas as lost, and clears the
 * mark when the node returns.
 */
export class NodeReconciler {
  private readonly queue: WorkQueue<string>;
  private readonly unsubscribes: (() => void)[];
  /** Begin of the hold of the replacement brake for which an event was recorded last. */
  private reportedHoldSinceMs: number | undefined;

  constructor(private readonly deps: NodeReconcilerDeps) {
    this.queue = new WorkQueue<string>({
      clock: deps.clock,
      random: deps.random,
      metrics: { meter: deps.meter ?? noMeter, loop: 'node' },
      handle: (nodeId) => this.reconcile(nodeId),
      onError: (nodeId, reason) =>
        logFailure(deps.log, 'node reconcile failed', reason, { nodeId }),
      backoff: { firstMs: 20, maxMs: 5_000, jitter: 0.2 },
      concurrency: 16,
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
    if (node === undefined) return { kind: 'done' };
    const { phase } = nodes.status(nodeId);
    if (phase === NodePhase.READY && node.value.lost) return this.commitReturn(node);
    if (phase === NodePhase.LOST) return this.commitLoss(node);
    return { kind: 'done' };
  }

  private commitReturn(node: Stored<NodeRecord>): Promise<WorkResult> {
    const { state } = this.deps;
    return commitOrReconcileAgain(state, putNodeReturn(state.transaction(), state.view(), node));
  }

  private async commitLoss(node: Stored<NodeRecord>): Promise<WorkResult> {
    const { state, nodes, clock } = this.deps;
    const { id } = node.value;
    const transaction = state.transaction();
    if (!node.value.lost) {
      putNode(transaction, node, { lost: true });
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
    // The commit fails when the node has returned in the meantime.
    transaction.require('node', id, node);
    for (const replica of due) {
      const lost = {
        lost: true,
        lostAt: timestampFromMs(clock.wallTime()),
        desiredRunning: false,
        ready: false,
        phase: Phase.FAILED,
        reason: `node ${id} is lost`,
        stopReason: `node ${id} was lost and the replica was replaced`,
        orderRevision: state.view().revision,
      };
      transaction.updateReplica(replica, copyReplica(replica.value, lost));
    }
    transaction.event({
      severity: Severity.WARNING,
      category: Category.MEMBERSHIP,
      reason: 'ReplicasLost',
      message: `${due.length} ${due.length === 1 ? 'replica' : 'replicas'} lost with node ${id}`,
      nodeId: id,
      replicaIds: due.map(({ value }) => value.id),
      decision: {
        id: `loss/${id}@${state.view().revision}`,
        why: this.explainReplacement(confirmed),
      },
      causedBy: this.findLossEvent(id, confirmed),
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
      : 'its lease has ended, lost_after of its replicas has passed, and the replacement brake is released';
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
  changes: { readonly lost: boolean },
): void {
  const next = Object.assign(clone(NodeRecordSchema, node.value), changes);
  transaction.require('node', next.id, node).put('node', next.id, next);
}
