import { create } from '@bufbuild/protobuf';
import { FilterCountSchema, type FilterCount } from '@cloudless/api';
import { PLACEMENT_FILTERS, type PlacementFilter } from '@cloudless/scheduler';
import { toReasonKind } from './api-reason.js';

/** The verdict on one node, as far as the funnel needs it. */
export type FilteredNode =
  | { readonly fits: true }
  | { readonly fits: false; readonly reasons: readonly { readonly filter: PlacementFilter }[] };

/**
 * Counts the nodes that each filter removes. Each node is counted under the first filter that it
 * fails, in the order of {@link PLACEMENT_FILTERS}.
 * @param nodes - The verdicts on all nodes, in any order.
 * @returns The filters that remove at least one node, in the order in which they are checked. The
 *   last item has the number of nodes that fit.
 */
export function countRemovedNodes(nodes: readonly FilteredNode[]): readonly FilterCount[] {
  const removedBy = new Map<PlacementFilter, number>();
  for (const node of nodes) {
    if (node.fits) continue;
    const failed = new Set(node.reasons.map(({ filter }) => filter));
    const first = PLACEMENT_FILTERS.find((filter) => failed.has(filter));
    if (first !== undefined) removedBy.set(first, (removedBy.get(first) ?? 0) + 1);
  }
  let left = nodes.length;
  return PLACEMENT_FILTERS.flatMap((filter) => {
    const removed = removedBy.get(filter) ?? 0;
    if (removed === 0) return [];
    left -= removed;
    return [create(FilterCountSchema, { kind: toReasonKind(filter), removed, left })];
  });
}
