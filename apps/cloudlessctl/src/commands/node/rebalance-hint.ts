import {
  Rollout_Strategy as Strategy,
  WorkloadSpec_Mode as Mode,
  WorkloadStatus_Phase as Phase,
} from '@cloudless/api';
import type { Node, Workload } from '@cloudless/api';
import type { CliSession } from '../../call/cli-session.js';

/** Workloads that the hint looks at; enough to find one in most clusters, and a small response. */
const MAX_LISTED = 50;
/** Smallest difference that a move can make smaller. */
const MIN_SURPLUS = 2;
/** Workloads whose placement is explained until one can use the node. */
const MAX_EXPLAINED = 3;

/**
 * Returns a hint for a node that accepts replicas again while other nodes run more of a workload:
 * nothing moves back by itself. Undefined when no workload would be spread better, and when that
 * cannot be determined.
 */
export async function findRebalanceHint(
  session: CliSession,
  node: Node,
): Promise<string | undefined> {
  try {
    const { workloads } = await session.client.listWorkloads(
      { includeReplicas: true, pageSize: MAX_LISTED },
      session.getCallOptions(),
    );
    const candidates = workloads
      .map((workload) => ({ workload, gain: countSurplus(workload, node.id) }))
      .filter(({ gain }) => gain >= MIN_SURPLUS)
      .sort((a, b) => b.gain - a.gain)
      .map(({ workload }) => workload);
    for (const { namespace, name } of candidates.slice(0, MAX_EXPLAINED)) {
      const { nodes } = await session.client.explainWorkload(
        { namespace, name },
        session.getCallOptions(),
      );
      if (nodes.some(({ nodeId, fits }) => nodeId === node.id && fits)) return formatHint(node);
    }
  } catch {
    // The node is uncordoned; a hint is not worth an error.
  }
  return undefined;
}

/**
 * Returns how many more replicas of a workload the fullest node runs than this node; 0 when a
 * move is not advisable: it would stop all replicas first, or a rollout is in progress; and when the
 * list omits replicas, so that the numbers of the nodes are unknown.
 */
function countSurplus({ spec, status }: Workload, nodeId: string): number {
  const isEligible =
    spec?.mode === Mode.REPLICATED &&
    spec.rollout?.strategy !== Strategy.RECREATE &&
    status?.phase === Phase.RUNNING &&
    status.omittedReplicas === 0;
  if (!isEligible) return 0;
  const counts = new Map<string, number>();
  for (const replica of status.replicas) {
    if (replica.nodeId === '' || replica.leaving) continue;
    counts.set(replica.nodeId, (counts.get(replica.nodeId) ?? 0) + 1);
  }
  return Math.max(0, ...counts.values()) - (counts.get(nodeId) ?? 0);
}

function formatHint({ id, status }: Node): string {
  const count = status?.replicaCount ?? 0;
  return (
    `${id} runs ${count} ${count === 1 ? 'replica' : 'replicas'}; new replicas may go there. ` +
    `To move existing replicas now: cloudlessctl rebalance`
  );
}
