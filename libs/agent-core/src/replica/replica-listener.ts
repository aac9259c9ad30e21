import type { OrderRefused, ReplicaReport } from '@cloudless/api';

/** Receives every change that must be sent to the coordinator. */
export interface ReplicaListener {
  /**
   * Called when the report of this replica has changed or the coordinator requests the report
   * again.
   */
  onChanged(replicaId: string): void;
  /** Called when the agent has refused an order. */
  onRefused(refusal: OrderRefused): void;
  /**
   * Called when all data of the replica has been removed; the report acknowledges the forget order.
   */
  onForgotten(report: ReplicaReport): void;
}
