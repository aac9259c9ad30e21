import type { Slot } from '../columns/value-column.js';
import type { FullRequest } from '../input/request.js';
import type { PreemptOptions } from './preemption.js';
import type { PreemptionSource, StayingReplicas } from './preemption-source.js';

/** More than the number of nodes. */
const NODE_STEP = 2 ** 20;
/** Room for 4 096 replicas of the workload on a node. */
const ZONE_STEP = NODE_STEP * 2 ** 12;

/**
 * The order of nodes with equal victims: the preferred node, then the fewest replicas of the
 * workload in the zone, then on the node, then the node id.
 */
export class TieOrder {
  private readonly ranks: Int32Array;
  private readonly preferred: Slot | undefined;
  private readonly staying: StayingReplicas;

  constructor(
    source: PreemptionSource,
    { workloadId }: FullRequest,
    { preferredNodeId }: PreemptOptions,
  ) {
    this.ranks = source.rankOf;
    this.preferred = preferredNodeId === undefined ? undefined : source.slotOf(preferredNodeId);
    this.staying = source.countStaying(workloadId);
  }

  /** Returns the position of a node in the order, different for each node. */
  of(slot: Slot): number {
    if (slot === this.preferred) return -1;
    const { onNode, inZone, zoneOf } = this.staying;
    return (
      (inZone[zoneOf[slot] ?? 0] ?? 0) * ZONE_STEP +
      (onNode[slot] ?? 0) * NODE_STEP +
      (this.ranks[slot] ?? 0)
    );
  }
}
