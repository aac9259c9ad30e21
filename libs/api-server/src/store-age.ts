import type { Hello, OrderRefused, ReplicaReport } from '@cloudless/api';
import { isLive, isTombstone } from '@cloudless/cluster-state';
import type { ApiServerDeps } from './ports.js';

/**
 * Notices that the store went back in time, by what agents hold that it can never have given. Told
 * before anything is done on the strength of what an agent says.
 */
export class StoreAge {
  /** Nodes that may know our epoch, as they were told it. */
  private readonly told = new Set<string>();

  constructor(private readonly deps: Pick<ApiServerDeps, 'state'>) {}

  /** An agent says hello; it is told our epoch next. */
  hello({ nodeId, highestEpoch: epoch }: Hello): void {
    const { state } = this.deps;
    // Epochs are never given twice: who knows ours and has not heard it from us knows the one of a
    // future that was lost.
    const isLost = epoch > state.epoch || (epoch === state.epoch && !this.told.has(nodeId));
    if (isLost) state.noticeNewer({ nodeId, epoch, orderRevision: 0n });
    this.told.add(nodeId);
  }

  /**
   * @param epoch - The newest leadership the agent had taken orders from when it reported; 0: ours,
   * perhaps.
   */
  report(nodeId: string, epoch: bigint, { replicaId, orderRevision }: ReplicaReport): void {
    const { state } = this.deps;
    const record = state.view().replica(replicaId)?.value;
    // One that has ended may have been told to stop once more, without a record of that.
    const isKept = record?.nodeId === nodeId && (isLive(record) || isTombstone(record));
    const isNewer =
      orderRevision > state.newestOrderOf(epoch) ||
      (isKept && orderRevision > state.toOrderRevision(record.orderRevision));
    if (isNewer) state.noticeNewer({ nodeId, epoch: 0n, orderRevision });
  }

  /** An order was refused because the agent holds something newer. */
  refused(nodeId: string, { heldEpoch, heldRevision }: OrderRefused): void {
    const { state } = this.deps;
    const [epoch, orderRevision] = [
      heldEpoch > state.epoch ? heldEpoch : 0n,
      heldRevision > state.orderRevision ? heldRevision : 0n,
    ];
    if (epoch > 0n || orderRevision > 0n) state.noticeNewer({ nodeId, epoch, orderRevision });
  }
}
