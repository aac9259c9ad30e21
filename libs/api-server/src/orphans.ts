import { create } from '@bufbuild/protobuf';
import {
  ReplicaReportSchema,
  ReplicaStatus_Phase as Phase,
  type Order,
  type ReplicaReport,
} from '@cloudless/api';
import type { ReplicaRecord } from '@cloudless/api/store';
import { isOrphan, orphanOrder } from './orders.js';
import type { ApiServerDeps } from './ports.js';

/** State of one orphan. */
interface Minded {
  /** The newest report of the agent. */
  readonly report: ReplicaReport;
  /** The last order, and its time on the monotonic clock. */
  readonly told?: { readonly order: Order; readonly atMs: number };
}

/**
 * Tracks the orphans of one agent. Each is ordered to stop and then to be forgotten; the order is
 * repeated until the agent reports that no data of the replica is left.
 */
export class Orphans {
  private readonly minded = new Map<string, Minded>();

  /** @param repeatMs - Time after which an order that was not followed is sent again. */
  constructor(
    private readonly deps: Pick<ApiServerDeps, 'state' | 'log' | 'clock'>,
    private readonly nodeId: string,
    private readonly repeatMs: number,
    private readonly send: (order: Order) => void,
  ) {}

  /** Handles a report of any replica. @returns False when the replica is an orphan. */
  take(report: ReplicaReport): boolean {
    const { replicaId } = report;
    const orphan = isOrphan(this.deps.state.view(), this.nodeId, report);
    if (!orphan || report.forgotten) this.minded.delete(replicaId);
    else this.tell({ ...this.minded.get(replicaId), report });
    return !orphan;
  }

  /** Handles the deletion of a replica record. Only records of ended replicas are deleted. */
  recordGone({ id, uid }: ReplicaRecord): void {
    const report = create(ReplicaReportSchema, {
      replicaId: id,
      workloadUid: uid,
      phase: Phase.STOPPED,
    });
    this.tell({ report });
  }

  /** Sends orders again that were not followed. */
  repeat(): void {
    for (const minded of [...this.minded.values()]) this.tell(minded);
  }

  private tell(minded: Minded): void {
    const { state, clock } = this.deps;
    const { report, told } = minded;
    const { replicaId } = report;
    this.minded.set(replicaId, minded);
    const wanted = orphanOrder(this.deps, report);
    if (wanted === undefined) return;
    const isRepeat =
      told !== undefined &&
      told.order.order.case === wanted.order.case &&
      told.order.epoch === state.epoch &&
      told.order.orderRevision >= report.orderRevision;
    if (isRepeat && clock.now() - told.atMs < this.repeatMs) return;
    // The same order is repeated, not a newer one, because the agent may have stored it already.
    const order = isRepeat ? told.order : wanted;
    if (!isRepeat && order.order.case === 'stop') {
      this.deps.log.warn('orphan is stopped', {
        nodeId: this.nodeId,
        replicaId,
        workloadId: report.workloadUid,
      });
    }
    this.minded.set(replicaId, { report, told: { order, atMs: clock.now() } });
    this.send(order);
  }
}
