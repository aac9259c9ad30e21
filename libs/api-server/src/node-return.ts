import { putNodeReturn } from '@cloudless/cluster-state';
import { withoutConflict } from './conflicts.js';
import type { ApiServerDeps } from './ports.js';

/**
 * Writes down that a lost node is back, before it is told what to run and counts as alive. A loss of its replicas that is being
 * committed at this moment either comes first, and then the orders show it, or holds no more: otherwise what it ran would be
 * started here and, as lost, elsewhere too.
 */
export function writeReturn(deps: Pick<ApiServerDeps, 'state' | 'clock' | 'random'>, nodeId: string): Promise<void> {
  const { state } = deps;
  return withoutConflict({ ...deps, what: `node "${nodeId}"` }, async () => {
    const node = state.view().node(nodeId);
    if (node?.value.lost !== true) return;
    await state.write(putNodeReturn(state.transaction(), state.view(), node));
  });
}
