import { clone, create } from '@bufbuild/protobuf';
import {
  DrainStatus_Phase as DrainPhase,
  Event_Category as Category,
  Event_Severity as Severity,
  type DrainStatus,
  type Event_Severity,
} from '@cloudless/api';
import {
  DrainRecordSchema,
  NodeRecordSchema,
  type DrainRecord,
  type NodeRecord,
  type ReplicaRecord,
} from '@cloudless/api/store';
import type { Clock, Log, Meter, Random, WorkQueue, WorkResult } from '@cloudless/base';
import {
  listReplicasHeldBy,
  toDrainStatus,
  type ClusterState,
  type RecordChange,
  type Stored,
} from '@cloudless/cluster-state';
import { commitOrReconcileAgain } from '../common/commit.js';
import { createReconcileQueue } from '../common/reconcile-queue.js';
import type { NodeDirectory } from '../node/node-directory.js';
import { getRemainingDrainMs } from './eviction.js';

export interface DrainReconcilerDeps {
  readonly state: ClusterState;
  readonly nodes: NodeDirectory;
  readonly clock: Clock;
  readonly random: Random;
  readonly log: Log;
  readonly meter?: Meter;
}

/** Most workloads that the event of a failed drain names; the status of the node lists more. */
const MAX_NAMED = 5;

/** Result of a drain, with the event that reports it. */
interface DrainOutcome {
  readonly phase: DrainPhase.DRAINED | DrainPhase.FAILED;
  readonly severity: Event_Severity;
  readonly reason: string;
  readonly message: string;
}

/**
 * Completes drains: DRAINED when no replica is left on the node, FAILED when the deadline has
 * passed. The workload reconcilers replace the replicas, within one disruption budget for each
 * workload. Level-triggered and without state of its own, so a drain continues after a crash.
 */
export class DrainReconciler {
  private readonly queue: WorkQueue<string>;
  private readonly unsubscribe: () => void;

  constructor(private readonly deps: DrainReconcilerDeps) {
    this.queue = createReconcileQueue(deps, {
      loop: 'drain',
      keyField: 'nodeId',
      failure: 'drain reconcile failed',
      handle: (nodeId) => this.reconcile(nodeId),
    });
    this.wakeAll();
    this.unsubscribe = deps.state.subscribe((changes) => this.wakeFor(changes));
  }

  async close(): Promise<void> {
    this.unsubscribe();
    await this.queue.stop();
  }

  private wakeFor(changes: readonly RecordChange[]): void {
    // The view shows all changes: without a draining node, none of them concerns a drain.
    const draining = new Set<string>();
    for (const { value } of this.deps.state.view().drainingNodes()) draining.add(value.id);
    if (draining.size === 0) return;
    for (const { kind, id, before, after } of changes) {
      if (kind === 'meta') this.wakeAll();
      const nodeIds = kind === 'node' ? [id] : kind === 'replica' ? listNodeIds(before, after) : [];
      for (const nodeId of nodeIds) if (draining.has(nodeId)) this.queue.wake(nodeId);
    }
  }

  private wakeAll(): void {
    for (const { value } of this.deps.state.view().drainingNodes()) this.queue.wake(value.id);
  }

  /**
   * Runs one pass over a node: compares its drain with the remaining replicas and with the time.
   * Level-triggered.
   */
  async reconcile(nodeId: string): Promise<WorkResult> {
    const { state, nodes, clock } = this.deps;
    // The change of the cluster record wakes this loop when an operator accepts the state.
    if (state.storeRolledBack !== undefined) return { kind: 'done' };
    const view = state.view();
    const node = view.node(nodeId);
    if (node?.value.draining !== true) return { kind: 'done' };
    const drain = node.value.drain ?? create(DrainRecordSchema, { phase: DrainPhase.DRAINING });
    // A drained node accepts nothing new, so no replica can appear on it again.
    if (drain.phase === DrainPhase.DRAINED) return { kind: 'done' };
    if (listReplicasHeldBy(view, nodeId).length === 0)
      return this.finishDrain(node, drain, createDrainedOutcome(nodeId, drain));
    const remainingMs = getRemainingDrainMs(drain, clock.wallTime());
    // A forced drain does not fail: the workload reconcilers stop the remaining replicas.
    if (remainingMs === undefined || drain.force) return { kind: 'done' };
    if (remainingMs > 0) return { kind: 'after', delayMs: remainingMs };
    return this.finishDrain(
      node,
      drain,
      createFailedOutcome(nodeId, drain, toDrainStatus({ view, nodes }, node.value)),
    );
  }

  private async finishDrain(
    node: Stored<NodeRecord>,
    drain: DrainRecord,
    outcome: DrainOutcome,
  ): Promise<WorkResult> {
    const { state, log } = this.deps;
    const { id } = node.value;
    const { phase, ...event } = outcome;
    const next = Object.assign(clone(NodeRecordSchema, node.value), {
      drain: Object.assign(clone(DrainRecordSchema, drain), { phase }),
      // A drained node keeps `draining` until a user uncordons it. After a failed drain, `draining`
      // is false, so that no further replica is evicted.
      draining: phase === DrainPhase.DRAINED,
    });
    const transaction = state.transaction().require('node', id, node).put('node', id, next);
    transaction.event({
      ...event,
      category: Category.MEMBERSHIP,
      nodeId: id,
      causedBy: state
        .view()
        .lastEvent({ kind: 'node', nodeId: id }, ['NodeDraining', 'NodeDrainChanged']),
    });
    const result = await commitOrReconcileAgain(state, transaction);
    log.info('drain ended', { nodeId: id, phase: DrainPhase[phase] });
    return result;
  }
}

function listNodeIds(
  before: ReplicaRecord | undefined,
  after: ReplicaRecord | undefined,
): readonly string[] {
  return [before?.nodeId ?? '', after?.nodeId ?? ''].filter((nodeId) => nodeId !== '');
}

function createDrainedOutcome(nodeId: string, { total }: DrainRecord): DrainOutcome {
  const message = `node ${nodeId} is drained: nothing is left of the ${total} ${total === 1 ? 'replica' : 'replicas'} it held; it stays cordoned until it is uncordoned`;
  return { phase: DrainPhase.DRAINED, severity: Severity.INFO, reason: 'NodeDrained', message };
}

function createFailedOutcome(
  nodeId: string,
  { total }: DrainRecord,
  status: DrainStatus | undefined,
): DrainOutcome {
  const { remaining = 0, waiting = [] } = status ?? {};
  const remainder = `${remaining} of ${total} ${total === 1 ? 'replica' : 'replicas'} left`;
  return {
    phase: DrainPhase.FAILED,
    severity: Severity.ERROR,
    reason: 'NodeDrainFailed',
    message: `the drain of node ${nodeId} has failed: its deadline has passed with ${remainder}; nothing more is moved, and the node stays cordoned. Left: ${waiting.slice(0, MAX_NAMED).join('; ')}${waiting.length > MAX_NAMED ? '; …' : ''}`,
  };
}
