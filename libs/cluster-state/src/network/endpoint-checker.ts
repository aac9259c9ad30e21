import type { NodeRecord } from '@cloudless/api/store';
import type { ClusterView } from '../view/cluster-view.js';

/** Returns true for a node whose proxy can check endpoints outside the cluster. */
export function canCheckEndpoints({ hello, lost }: NodeRecord): boolean {
  return hello?.network !== undefined && !lost;
}

/**
 * Returns the score of a node for an endpoint, 0 to 2^32 - 1: rendezvous hashing with FNV-1a, whose
 * result is mixed once more, because the last characters alone hardly change the high bits. The node
 * with the highest score checks the endpoint.
 * @param key - `<namespace>/<service>/<id>`.
 */
export function scoreChecker(nodeId: string, key: string): number {
  let hash = 0x811c9dc5;
  for (const text of [nodeId, '\0', key])
    for (let index = 0; index < text.length; index += 1)
      hash = Math.imul(hash ^ text.charCodeAt(index), 0x01000193);
  hash = Math.imul(hash ^ (hash >>> 16), 0x85ebca6b);
  hash = Math.imul(hash ^ (hash >>> 13), 0xc2b2ae35);
  return (hash ^ (hash >>> 16)) >>> 0;
}

/** Returns the id of the node that checks an endpoint; undefined when no node can. */
export function findChecker(view: ClusterView, key: string): string | undefined {
  let best: { readonly nodeId: string; readonly score: number } | undefined;
  for (const { value } of view.nodes()) {
    if (!canCheckEndpoints(value) || view.nodeBan(value.id) !== undefined) continue;
    const score = scoreChecker(value.id, key);
    if (best === undefined || score > best.score) best = { nodeId: value.id, score };
  }
  return best?.nodeId;
}
