import type { Hello, OrderRefused, ReplicaReport } from '@cloudless/api';
import type { ReplicaRecord } from '@cloudless/api/store';
import { InvalidInputError } from '@cloudless/base';
import { isLive, isTombstone, type AgentOrderState } from '@cloudless/cluster-state';
import type { ApiServerDeps } from '../ports.js';

/**
 * The most by which a lost state can be ahead of this one: more leaderships and commits than there
 * ever are between a backup and its restore. A number beyond comes from a broken or hostile agent.
 * An accepted number is where this coordinator continues, so the largest number of the store would
 * leave no next one, and no acceptance could ever succeed.
 */
const MAX_LEAD = 2n ** 40n;

/**
 * Detects that the store went back in time: an agent holds an epoch or an order revision that this
 * store never issued. Each check calls `ClusterState.reportNewerState` in that case, and throws kind
 * `invalid` for impossible numbers. Call the check before acting on the message of the agent.
 */
export class RollbackDetector {
  /** Ids of the nodes to which this coordinator has sent the current epoch. */
  private readonly welcomedNodes = new Set<string>();

  constructor(private readonly deps: Pick<ApiServerDeps, 'state'>) {}

  /**
   * Checks a Hello. The coordinator must send its Welcome, with the epoch, to the node after that.
   */
  checkHello({ nodeId, highestEpoch: epoch }: Hello): void {
    const { state } = this.deps;
    // An epoch is never issued twice. When an agent holds the current epoch, and this coordinator
    // has not sent the epoch to its node, then a coordinator with a newer, lost state has issued
    // it.
    const isFromLostState =
      epoch > state.epoch || (epoch === state.epoch && !this.welcomedNodes.has(nodeId));
    if (isFromLostState) this.report({ nodeId, epoch, orderRevision: 0n });
    this.welcomedNodes.add(nodeId);
  }

  /**
   * Checks a report.
   * @param epoch - The newest epoch whose orders the agent had accepted at the time of the report;
   *   0 for a report during the session, which may be about an order of the current epoch.
   * @param record - The record of the reported replica; undefined when there is none.
   */
  checkReport(
    nodeId: string,
    epoch: bigint,
    { orderRevision }: Pick<ReplicaReport, 'orderRevision'>,
    record: ReplicaRecord | undefined,
  ): void {
    const { state } = this.deps;
    // Only records of replicas that hold resources count: an ended replica may have received a
    // later stop order as an orphan, which no record contains.
    const isHeld = record?.nodeId === nodeId && (isLive(record) || isTombstone(record));
    const isNewer =
      orderRevision > state.getNewestOrderRevision(epoch) ||
      (isHeld && orderRevision > state.toOrderRevision(record.orderRevision));
    if (isNewer) this.report({ nodeId, epoch: 0n, orderRevision });
  }

  /**
   * Checks the refusal of an order, which contains the newest epoch and order that the agent holds.
   */
  checkRefusal(nodeId: string, { heldEpoch, heldRevision }: OrderRefused): void {
    const { state } = this.deps;
    const [epoch, orderRevision] = [
      heldEpoch > state.epoch ? heldEpoch : 0n,
      heldRevision > state.orderRevision ? heldRevision : 0n,
    ];
    if (epoch > 0n || orderRevision > 0n) this.report({ nodeId, epoch, orderRevision });
  }

  /** @throws kind `invalid` for numbers that no coordinator can have issued. */
  private report(held: AgentOrderState): void {
    const { state } = this.deps;
    for (const [field, value, current] of [
      ['highest_epoch', held.epoch, state.epoch],
      ['order_revision', held.orderRevision, state.orderRevision],
    ] as const) {
      if (value <= current + MAX_LEAD) continue;
      const message = `${value} of node "${held.nodeId}" is impossible; this coordinator is at ${current}`;
      throw new InvalidInputError([{ field, message }]);
    }
    state.reportNewerState(held);
  }
}
