import type { Hello, OrderRefused, ReplicaReport } from '@cloudless/api';
import { isLive, isTombstone } from '@cloudless/cluster-state';
import type { ApiServerDeps } from '../ports.js';

/**
 * Detects that the store went back in time: an agent has an epoch or an order that this store never
 * gave. Call the check methods before acting on a message of an agent.
 */
export class RollbackDetector {
  /** Nodes that know the current epoch because this coordinator has sent it to them. */
  private readonly welcomedNodes = new Set<string>();

  constructor(private readonly deps: Pick<ApiServerDeps, 'state'>) {}

  /** Checks a Hello. The coordinator sends its epoch to the node after that. */
  checkHello({ nodeId, highestEpoch: epoch }: Hello): void {
    const { state } = this.deps;
    // An epoch is never used twice. An agent that knows the current epoch without having received
    // it from this coordinator knows the epoch of a state that was lost.
    const isLost =
      epoch > state.epoch || (epoch === state.epoch && !this.welcomedNodes.has(nodeId));
    if (isLost) state.reportNewerState({ nodeId, epoch, orderRevision: 0n });
    this.welcomedNodes.add(nodeId);
  }

  /**
   * Checks a report.
   * @param epoch - The newest epoch whose orders the agent had accepted at the time of the report;
   *   0: possibly the current one.
   */
  checkReport(nodeId: string, epoch: bigint, { replicaId, orderRevision }: ReplicaReport): void {
    const { state } = this.deps;
    const record = state.view().replica(replicaId)?.value;
    // A replica that has ended may have received another stop order that no record contains.
    const isKept = record?.nodeId === nodeId && (isLive(record) || isTombstone(record));
    const isNewer =
      orderRevision > state.getNewestOrderRevision(epoch) ||
      (isKept && orderRevision > state.toOrderRevision(record.orderRevision));
    if (isNewer) state.reportNewerState({ nodeId, epoch: 0n, orderRevision });
  }

  /** Checks the refusal of an order. */
  checkRefusal(nodeId: string, { heldEpoch, heldRevision }: OrderRefused): void {
    const { state } = this.deps;
    const [epoch, orderRevision] = [
      heldEpoch > state.epoch ? heldEpoch : 0n,
      heldRevision > state.orderRevision ? heldRevision : 0n,
    ];
    if (epoch > 0n || orderRevision > 0n) state.reportNewerState({ nodeId, epoch, orderRevision });
  }
}
