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

/** What is known of one replica that no record asks for. */
interface Minded {
  /** The agent's newest. */
  readonly report: ReplicaReport;
  /** What it was told, and when, on the monotonic clock. */
  readonly told?: { readonly order: Order; readonly atMs: number };
}

/**
 * The replicas of one agent that no record asks for. Each is told to stop and then to be forgotten,
 * again until the agent says that nothing is left of it. Holds those only.
 */
export class Orphans {
  private readonly minded = new Map<string, Minded>();

  /** @param repeatMs - What was not obeyed is said again after this long. */
  constructor(
    private readonly deps: Pick<ApiServerDeps, 'state' | 'log' | 'clock'>,
    private readonly nodeId: string,
    private readonly repeatMs: number,
    private readonly send: (order: Order) => void,
  ) {}

  /** The agent reports a replica, any one. @returns Whether a record asks for it. */
  take(report: ReplicaReport): boolean {
    const { replicaId } = report;
    const orphan = isOrphan(this.deps.state.view(), this.nodeId, report);
    if (!orphan || report.forgotten) this.minded.delete(replicaId);
    else this.tell({ ...this.minded.get(replicaId), report });
    return !orphan;
  }

  /** The record of a replica is gone, which ends only what has ended. */
  recordGone({ id, uid }: ReplicaRecord): void {
    const report = create(ReplicaReportSchema, {
      replicaId: id,
      workloadUid: uid,
      phase: Phase.STOPPED,
    });
    this.tell({ report });
  }

  /** Says again what was not obeyed. */
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
    // The same order again, and not a newer one each time: the agent has it on its disk perhaps.
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
