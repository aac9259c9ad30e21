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
import {
  WorkQueue,
  logFailure,
  noMeter,
  type Clock,
  type Log,
  type Meter,
  type Random,
  type WorkResult,
} from '@cloudless/base';
import type { ClusterState, RecordChange, Stored } from '@cloudless/cluster-state';
import { commitOrPlanAgain } from './commit.js';
import { drainStatusOf, replicasHeldBy } from './drain-status.js';
import { drainLeftMs } from './moving.js';
import type { NodeDirectory } from './node-directory.js';

/** What {@link DrainReconciler} works with. */
export interface DrainReconcilerDeps {
  readonly state: ClusterState;
  readonly nodes: NodeDirectory;
  readonly clock: Clock;
  readonly random: Random;
  readonly log: Log;
  readonly meter?: Meter;
}

/** An event is a sentence; the status of the node has more. */
const MAX_TOLD = 5;

/** Where a drain goes from DRAINING. */
interface End {
  readonly phase: DrainPhase.DRAINED | DrainPhase.FAILED;
  readonly severity: Event_Severity;
  readonly reason: string;
  readonly message: string;
}

/**
 * Says when the drain of a node is over: nothing is left on it, or its deadline has passed. What is
 * on it is moved by the reconcilers of the workloads, which share one account of what may be taken
 * down. Level-triggered: everything that it knows is in the records, so a drain goes on after a
 * crash.
 */
export class DrainReconciler {
  private readonly queue: WorkQueue<string>;
  private readonly unsubscribe: () => void;

  constructor(private readonly deps: DrainReconcilerDeps) {
    this.queue = new WorkQueue<string>({
      clock: deps.clock,
      random: deps.random,
      metrics: { meter: deps.meter ?? noMeter, loop: 'drain' },
      handle: (nodeId) => this.reconcile(nodeId),
      onError: (nodeId, reason) =>
        logFailure(deps.log, 'drain reconcile failed', reason, { nodeId }),
      backoff: { firstMs: 20, maxMs: 5_000, jitter: 0.2 },
      concurrency: 16,
    });
    this.wakeAll();
    this.unsubscribe = deps.state.subscribe((changes) => this.wakeFor(changes));
  }

  async close(): Promise<void> {
    this.unsubscribe();
    await this.queue.stop();
  }

  private wakeFor(changes: readonly RecordChange[]): void {
    const view = this.deps.state.view();
    for (const { kind, id, before, after } of changes) {
      if (kind === 'meta') this.wakeAll();
      const nodeIds =
        kind === 'node'
          ? [id]
          : kind === 'replica'
            ? nodesOf(before as ReplicaRecord, after as ReplicaRecord)
            : [];
      for (const nodeId of nodeIds)
        if (view.node(nodeId)?.value.draining === true) this.queue.wake(nodeId);
    }
  }

  private wakeAll(): void {
    for (const { value } of this.deps.state.view().drainingNodes()) this.queue.wake(value.id);
  }

  /** Level-triggered: compares a drain with what is left on the node, and with the time. */
  async reconcile(nodeId: string): Promise<WorkResult> {
    const { state, nodes, clock } = this.deps;
    // Woken again when that ends: the record of the cluster changes.
    if (state.restored !== undefined) return { kind: 'done' };
    const view = state.view();
    const node = view.node(nodeId);
    if (node?.value.draining !== true) return { kind: 'done' };
    const drain = node.value.drain ?? create(DrainRecordSchema, { phase: DrainPhase.DRAINING });
    // A drained node takes nothing: it stays drained.
    if (drain.phase === DrainPhase.DRAINED) return { kind: 'done' };
    if (replicasHeldBy(view, nodeId).length === 0)
      return this.end(node, drain, drained(nodeId, drain));
    const leftMs = drainLeftMs(drain, clock.wallTime());
    // What is left of a forced drain is stopped by the reconcilers of the workloads.
    if (leftMs === undefined || drain.force) return { kind: 'done' };
    if (leftMs > 0) return { kind: 'after', delayMs: leftMs };
    return this.end(node, drain, failed(nodeId, drain, drainStatusOf({ view, nodes }, node.value)));
  }

  private async end(node: Stored<NodeRecord>, drain: DrainRecord, end: End): Promise<WorkResult> {
    const { state, log } = this.deps;
    const { id } = node.value;
    const { phase, ...told } = end;
    const next = Object.assign(clone(NodeRecordSchema, node.value), {
      drain: Object.assign(clone(DrainRecordSchema, drain), { phase }),
      // A drained node stays one that is drained until it is in use again; a drain that failed
      // moves nothing more.
      draining: phase === DrainPhase.DRAINED,
    });
    const transaction = state.transaction().require('node', id, node).put('node', id, next);
    transaction.event({
      ...told,
      category: Category.MEMBERSHIP,
      nodeId: id,
      causedBy: state
        .view()
        .lastEvent({ kind: 'node', nodeId: id }, ['NodeDraining', 'NodeDrainChanged']),
    });
    const result = await commitOrPlanAgain(state, transaction);
    log.info('drain ended', { nodeId: id, phase: DrainPhase[phase] });
    return result;
  }
}

function nodesOf(
  before: ReplicaRecord | undefined,
  after: ReplicaRecord | undefined,
): readonly string[] {
  return [before?.nodeId ?? '', after?.nodeId ?? ''].filter((nodeId) => nodeId !== '');
}

function drained(nodeId: string, { total }: DrainRecord): End {
  const message = `node ${nodeId} is drained: nothing is left of the ${total} ${total === 1 ? 'replica' : 'replicas'} it held; it stays cordoned until it is uncordoned`;
  return { phase: DrainPhase.DRAINED, severity: Severity.INFO, reason: 'NodeDrained', message };
}

function failed(nodeId: string, { total }: DrainRecord, status: DrainStatus | undefined): End {
  const { remaining = 0, waiting = [] } = status ?? {};
  const left = `${remaining} of ${total} ${total === 1 ? 'replica' : 'replicas'} left`;
  return {
    phase: DrainPhase.FAILED,
    severity: Severity.ERROR,
    reason: 'NodeDrainFailed',
    message: `the drain of node ${nodeId} has failed: its deadline has passed with ${left}; nothing more is moved, and the node stays cordoned. Left: ${waiting.slice(0, MAX_TOLD).join('; ')}${waiting.length > MAX_TOLD ? '; …' : ''}`,
  };
}
