import { create } from '@bufbuild/protobuf';
import {
  ReplicaReportSchema,
  ReplicaStatus_Phase as Phase,
  type Order,
  type ReplicaReport,
} from '@cloudless/api';
import type { ReplicaRecord } from '@cloudless/api/store';
import type { ApiServerDeps } from '../ports.js';
import { createOrphanOrder } from './orders.js';
import type { RunningOrphan, RunningOrphans } from './running-orphans.js';

interface Orphan {
  /** The newest report of the agent about the replica. */
  readonly report: ReplicaReport;
  /** The last order that was sent, and its time on the monotonic clock. Absent before the first. */
  readonly lastOrder?: { readonly order: Order; readonly atMs: number };
}

/**
 * Tracks the orphans of one agent: replicas of the agent that no record assigns to its node, or
 * whose record has ended. The tracker sends a stop order for each orphan, then a forget order, and
 * repeats each order until a report shows that the agent has followed it.
 */
export class OrphanTracker {
  private readonly orphans = new Map<string, Orphan>();

  /**
   * @param repeatMs - Time after which {@link resendOrders} sends an order again.
   * @param send - Sends an order to the agent.
   */
  constructor(
    private readonly deps: Pick<ApiServerDeps, 'state' | 'log' | 'clock'> & {
      readonly runningOrphans: RunningOrphans;
    },
    private readonly nodeId: string,
    private readonly repeatMs: number,
    private readonly send: (order: Order) => void,
  ) {}

  /** Number of orphans that the agent still has. */
  get size(): number {
    return this.orphans.size;
  }

  /** Handles a report about an orphan, and sends the order for it. */
  handleReport(report: ReplicaReport): void {
    const { replicaId } = report;
    if (report.forgotten) return this.remove(replicaId);
    const orphan = { ...this.orphans.get(replicaId), report };
    if (report.phase <= Phase.STOPPING) this.deps.runningOrphans.add(this.toRunning(orphan));
    else this.deps.runningOrphans.remove(this.toRunning(orphan));
    this.sendOrder(orphan);
  }

  /** Removes a replica, because it is no orphan any more. */
  remove(replicaId: string): void {
    const orphan = this.orphans.get(replicaId);
    if (orphan === undefined) return;
    this.orphans.delete(replicaId);
    this.deps.runningOrphans.remove(this.toRunning(orphan));
  }

  /** Returns true when a replica is an orphan that the agent still has. */
  has(replicaId: string): boolean {
    return this.orphans.has(replicaId);
  }

  /**
   * Sends the forget order for a replica whose record was deleted. Only records of ended replicas
   * are deleted.
   */
  handleRecordDeleted({ id, uid }: ReplicaRecord): void {
    const report = create(ReplicaReportSchema, {
      replicaId: id,
      workloadUid: uid,
      phase: Phase.STOPPED,
    });
    this.sendOrder({ report });
  }

  /** Sends again the orders that were sent at least `repeatMs` ago and not followed. */
  resendOrders(): void {
    for (const orphan of [...this.orphans.values()]) this.sendOrder(orphan);
  }

  private sendOrder(orphan: Orphan): void {
    const { state, clock } = this.deps;
    const { report, lastOrder } = orphan;
    const { replicaId } = report;
    this.orphans.set(replicaId, orphan);
    const newOrder = createOrphanOrder(this.deps, report);
    if (newOrder === undefined) return;
    const isRepeat =
      lastOrder !== undefined &&
      lastOrder.order.order.case === newOrder.order.case &&
      lastOrder.order.epoch === state.epoch &&
      lastOrder.order.orderRevision >= report.orderRevision;
    if (isRepeat && clock.now() - lastOrder.atMs < this.repeatMs) return;
    // Repeats the order with its old revision: the agent may have stored it and follow it already.
    const order = isRepeat ? lastOrder.order : newOrder;
    if (!isRepeat && order.order.case === 'stop') {
      this.deps.log.warn('orphan is stopped', {
        nodeId: this.nodeId,
        replicaId,
        workloadId: report.workloadUid,
      });
    }
    this.orphans.set(replicaId, { report, lastOrder: { order, atMs: clock.now() } });
    this.send(order);
  }

  private toRunning({ report: { replicaId, workloadUid } }: Orphan): RunningOrphan {
    return { nodeId: this.nodeId, replicaId, workloadUid };
  }
}
