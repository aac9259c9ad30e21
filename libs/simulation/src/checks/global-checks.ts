import { WorkloadSpec_Mode as Mode } from '@cloudless/api';
import type { ReplicaRecord, WorkloadRecord } from '@cloudless/api/store';
import { isLive } from '@cloudless/cluster-state';
import { definedFields } from '@cloudless/base';
import { resolveLimits, type RolloutLimits } from '@cloudless/rollout';
import type { CheckedView } from '../parts/durable-records.js';
import type { NodeFacts } from '../parts/node-facts.js';
import { isEvicted } from './node-access.js';
import { settingsOf, type RolloutFacts } from './rollout-facts.js';

/** Returns true for a workload that runs one replica on each fitting node. */
export function isGlobal({ spec }: WorkloadRecord): boolean {
  return spec?.mode === Mode.GLOBAL;
}

/**
 * Invariant 6 for GLOBAL workloads: no node has more than one wanted replica of a version, nor more
 * than two of all versions (a successor beside the replica that it replaces).
 */
export function findCrowdedNodes({
  workload,
  live,
  canonicalVersion,
}: RolloutFacts): readonly string[] {
  const byNode = new Map<string, ReplicaRecord[]>();
  for (const replica of live.filter(({ desiredRunning }) => desiredRunning)) {
    const nodeId = replica.nodeId === '' ? replica.onlyNodeId : replica.nodeId;
    byNode.set(nodeId, [...(byNode.get(nodeId) ?? []), replica]);
  }
  return [...byNode].flatMap(([nodeId, replicas]) => {
    const versions = new Set(replicas.map(({ version }) => canonicalVersion(version)));
    return replicas.length > versions.size || replicas.length > 2
      ? [
          `${workload.name} has ${replicas.length} replicas of ${versions.size} versions on ${nodeId}`,
        ]
      : [];
  });
}

/**
 * Invariant 9 for GLOBAL workloads: the limits for the nodes that had a replica when a stop was
 * decided and may keep it. Nodes that still get their first replica are not counted, because a node
 * may have become schedulable after the decision; so the limits are a lower bound.
 * @param replicas - The replicas before the stop.
 */
export function resolveGlobalLimits(
  view: Pick<CheckedView, 'version'>,
  workload: WorkloadRecord,
  replicas: readonly ReplicaRecord[],
  nodeFacts: NodeFacts,
): RolloutLimits {
  const occupied = new Set(
    replicas
      .filter(
        (replica) =>
          replica.nodeId !== '' &&
          replica.desiredRunning &&
          !replica.lost &&
          isLive(replica) &&
          !isEvicted(view, replica, nodeFacts),
      )
      .map(({ nodeId }) => nodeId),
  );
  const { maxSurge, maxUnavailable, minAvailable } = settingsOf(workload) ?? {};
  return resolveLimits({
    desired: workload.deletionRequestedAt === undefined ? occupied.size : 0,
    ...definedFields({ maxSurge, maxUnavailable, minAvailable }),
  });
}
