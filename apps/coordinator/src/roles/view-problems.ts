import { MAX_VIEW_AGE_MS } from '@cloudless/api-server';
import type { ClusterState } from '@cloudless/cluster-state';

/**
 * Returns why the view is too old for reads, for /health and /ready; empty while the view is fresh.
 */
export function listViewProblems({
  viewAgeMs,
}: Pick<ClusterState, 'viewAgeMs'>): readonly string[] {
  if (viewAgeMs <= MAX_VIEW_AGE_MS) return [];
  const seconds = Math.floor(viewAgeMs / 1_000);
  return [
    `this coordinator has not reached the state store for ${seconds} s: it serves no reads, which the leader serves if it is reached; check the network to the members of etcd`,
  ];
}
