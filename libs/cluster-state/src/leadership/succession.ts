import type { CoordinatorRecord } from '@cloudless/api/store';
import type { ClusterView } from '../view/view.js';

/**
 * Returns the coordinator that campaigns without a delay when a leader ends: of the others that run,
 * the first by id. All views that show the same coordinators agree.
 * @param leaderId - Id of the coordinator whose leadership ends.
 * @returns Undefined when no other coordinator is known to run.
 */
export function findNextInLine(
  view: Pick<ClusterView, 'coordinators'>,
  leaderId: string | undefined,
): CoordinatorRecord | undefined {
  let next: CoordinatorRecord | undefined;
  for (const { value } of view.coordinators())
    if (value.id !== leaderId && (next === undefined || value.id < next.id)) next = value;
  return next;
}
