import { MAX_VIEW_AGE_MS } from '@cloudless/api-server';
import type { ClusterState } from '@cloudless/cluster-state';

/** Returns why the view is too old for reads, for /ready; empty while the view is fresh. */
export function listViewProblems({
  viewAgeMs,
}: Pick<ClusterState, 'viewAgeMs'>): readonly string[] {
  if (viewAgeMs <= MAX_VIEW_AGE_MS) return [];
  const seconds = Math.floor(viewAgeMs / 1_000);
  return [`the state store has not confirmed the view of this coordinator for ${seconds} s`];
}
