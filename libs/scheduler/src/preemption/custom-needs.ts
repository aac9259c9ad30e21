import type { Slot } from '../columns/value-column.js';
import type { HeldReservation } from '../input/reservation.js';
import { amountOf, DIMENSIONS, type Demand } from './demand.js';
import { FITS, FITS_AFTER_LEAVING, NEVER_FITS, toNeed } from './need.js';
import type { NodeSums } from './node-sums.js';
import type { PreemptionNode } from './preemption-source.js';

/**
 * Returns what a request needs of a node by its custom resources alone, as `NodeSums.need` does for
 * the others. Few requests ask for custom resources, so nothing is summed before.
 * @param priority - Only reservations of lower priority may be evicted.
 */
export function findCustomNeed(
  sums: NodeSums,
  slot: Slot,
  demand: Demand,
  priority: number,
): number {
  const node = sums.findNode(slot);
  if (node === undefined) return NEVER_FITS;
  const reservations = sums.reservationsOn(slot);
  let need = FITS;
  for (const dimension of demand.dimensions)
    if (dimension >= DIMENSIONS)
      need = Math.max(need, needOf(node, reservations, demand, dimension, priority));
  return need;
}

function needOf(
  node: PreemptionNode,
  reservations: readonly HeldReservation[],
  { amounts, custom }: Demand,
  dimension: number,
  priority: number,
): number {
  let shortage = (amounts[dimension] ?? 0) - amountOf(node.allocatable, dimension, custom);
  let leaving = 0;
  const held = new Map<number, number>();
  for (const each of reservations) {
    const amount = amountOf(each.resources, dimension, custom);
    if (each.leaving) leaving += amount;
    else {
      shortage += amount;
      held.set(each.priority, (held.get(each.priority) ?? 0) + amount);
    }
  }
  if (shortage <= 0) return shortage + leaving <= 0 ? FITS : FITS_AFTER_LEAVING;
  for (const each of [...held.keys()].sort((a, b) => a - b)) {
    if (each >= priority) break;
    shortage -= held.get(each) ?? 0;
    if (shortage <= 0) return toNeed({ priority: each, victims: 1 });
  }
  return NEVER_FITS;
}
