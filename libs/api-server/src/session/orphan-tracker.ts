import { create } from '@bufbuild/protobuf';
import {
  ReplicaReportSchema,
  ReplicaStatus_Phase as Phase,
  type Order,
  type ReplicaReport,
} from '@cloudless/api';
import type { ReplicaRecord } from '@cloudless/api/store';
import type { ApiServerDeps } from '../ports.js';
import { isOrphan, createOrphanOrder } from './orders.js';

/** State of one orphan. */
interface OrphanState {
  /** The newest report of the agent. */
  readonly report: ReplicaReport;
  /** The last order, and its time on the monotonic clock. */
  readonly lastOrder?: { readonly order: Order; readonly atMs: number };
}

/**
 * Tracks the orphans of one agent. Each is ordered to stop and then to be forgotten; the order is
 * repeated until the agent reports that no data of the replica is left.
 */
export class OrphanTracker {
  private readonly orphans = new Map<string, OrphanState>();

  /** @param repeatMs - Time after which an order that was not followed is sent again. */
  constructor(
    private readonly deps: Pick<ApiServerDeps, 'state' | 'log' | 'clock'>,
    private readonly nodeId: string,
    private readonly repeatMs: number,
    private readonly send: (order: Order) => void,
  ) {}

  /** Handles a report of any replica. @returns False when the replica is an orphan. */
  handleReport(report: ReplicaReport): boolean {
    const { replicaId } = report;
    const orphan = isOrphan(this.deps.state.view(), this.nodeId, report);
    if (!orphan || report.forgotten) this.orphans.delete(replicaId);
    else this.sendOrder({ ...this.orphans.get(replicaId), report });
    return !orphan;
  }

  /** Handles the deletion of a replica record. Only records of ended replicas are deleted. */
  handleRecordDeleted({ id, uid }: ReplicaRecord): void {
    const report = create(ReplicaReportSchema, {
      replicaId: id,
      workloadUid: uid,
      phase: Phase.STOPPED,
    });
    this.sendOrder({ report });
  }

  /** Sends orders again that were not followed. */
  resendOrders(): void {
    for (const minded of [...this.orphans.values()]) this.sendOrder(minded);
  }

  private sendOrder(minded: OrphanState): void {
    const { state, clock } = this.deps;
    const { report, lastOrder } = minded;
    const { replicaId } = report;
    this.orphans.set(replicaId, minded);
    const wanted = createOrphanOrder(this.deps, report);
    if (wanted === undefined) return;
    const isRepeat =
      lastOrder !== undefined &&
      lastOrder.order.order.case === wanted.order.case &&
      lastOrder.order.epoch === state.epoch &&
      lastOrder.order.orderRevision >= report.orderRevision;
    if (isRepeat && clock.now() - lastOrder.atMs < this.repeatMs) return;
    // The same order is repeated, not a newer one, because the agent may have stored it already.
    const order = isRepeat ? lastOrder.order : wanted;
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
}
