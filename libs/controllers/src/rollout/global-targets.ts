import { create } from '@bufbuild/protobuf';
import { WorkloadSpec_Mode as Mode, WorkloadSpecSchema, type WorkloadSpec } from '@cloudless/api';
import type { ReplicaRecord, WorkloadRecord } from '@cloudless/api/store';
import type { Clock } from '@cloudless/base';
import { toCanonicalVersion, isLive, type ClusterView } from '@cloudless/cluster-state';
import type { Cluster } from '@cloudless/scheduler';
import { findEviction } from '../drain/eviction.js';
import { toPlacementRequest, toStayingRequest } from '../placement/scheduler-input.js';
import { isFinished } from '../replica/finished.js';

export interface GlobalTargetSources {
  readonly view: Pick<ClusterView, 'node' | 'version'>;
  readonly cluster: Pick<Cluster, 'eligibleNodes'>;
  readonly clock: Pick<Clock, 'wallTime'>;
}

/** The target nodes of a workload in mode GLOBAL. All lists of ids are sorted. */
export interface GlobalTargets {
  /**
   * All target nodes, also those whose replica has finished. Their number is the wanted count of
   * the workload.
   */
  readonly nodeIds: readonly string[];
  /**
   * Target nodes where the planner keeps a replica: all target nodes without a finished or a pinned
   * replica.
   */
  readonly schedulable: readonly string[];
  /** Target nodes whose replica has finished. The replica does not run there again. */
  readonly ended: readonly string[];
  /**
   * Ids of the pinned replicas: replicas of another version on nodes that accept nothing new. No
   * replacement could be placed there, so these replicas stay until the node accepts replicas
   * again, and are no input of the planner.
   */
  readonly pinned: ReadonlySet<string>;
}

/** Returns true for mode GLOBAL: one replica on each fitting node, as a DaemonSet has. */
export function isGlobal(spec: Pick<WorkloadSpec, 'mode'> | undefined): boolean {
  return spec?.mode === Mode.GLOBAL;
}

/**
 * Returns the nodes on which a GLOBAL workload has or gets a replica: all nodes that fit, free
 * capacity aside. A node that accepts nothing new (cordoned, quarantined, silent, lost but its
 * replica not yet replaced, or with a NO_SCHEDULE taint) keeps its replica. A node that is drained
 * or no longer fits loses its replica.
 * @returns Undefined for a workload in mode REPLICATED.
 */
export function findGlobalTargets(
  sources: GlobalTargetSources,
  workload: WorkloadRecord,
  replicas: readonly ReplicaRecord[],
): GlobalTargets | undefined {
  if (!isGlobal(workload.spec)) return undefined;
  const spec = workload.spec ?? create(WorkloadSpecSchema);
  const nowMs = sources.clock.wallTime();
  const openNodes = new Set<string>();
  const eligible = sources.cluster.eligibleNodes(toPlacementRequest(workload, spec));
  for (const node of eligible) if (node.schedulable) openNodes.add(node.nodeId);
  const hasTimedToleration =
    spec.placement?.tolerations.some(({ tolerationPeriod }) => tolerationPeriod !== undefined) ??
    false;
  const eligibleToStay = hasTimedToleration
    ? sources.cluster.eligibleNodes(toStayingRequest(workload, spec))
    : eligible;
  const mayStay = new Set<string>(eligibleToStay.map(({ nodeId }) => nodeId));
  const wantedReplicas = replicas.filter(
    ({ nodeId, desiredRunning, lost }) => nodeId !== '' && desiredRunning && !lost,
  );
  const ended = new Set(
    wantedReplicas
      .filter((replica) => isFinished(sources.view, workload, replica))
      .map(({ nodeId }) => nodeId),
  );
  const mayRemain = (replica: ReplicaRecord): boolean =>
    mayStay.has(replica.nodeId) && !findEviction(sources.view, replica, nowMs).draining;
  const onClosedNodes = wantedReplicas.filter(
    (replica) => !openNodes.has(replica.nodeId) && isLive(replica) && mayRemain(replica),
  );
  const toCanonical = (version: number): number =>
    toCanonicalVersion(sources.view, workload.uid, version);
  const isCurrent = ({ version }: ReplicaRecord): boolean =>
    toCanonical(version) === toCanonical(workload.version);
  const current = new Set(onClosedNodes.filter(isCurrent).map(({ nodeId }) => nodeId));
  const pinned = onClosedNodes.filter(({ nodeId }) => !current.has(nodeId) && !ended.has(nodeId));
  const isNotEnded = (nodeId: string): boolean => !ended.has(nodeId);
  return {
    nodeIds: sortUnique([...openNodes, ...ended, ...onClosedNodes.map(({ nodeId }) => nodeId)]),
    schedulable: sortUnique([...openNodes, ...current]).filter(isNotEnded),
    ended: sortUnique(ended),
    pinned: new Set(pinned.map(({ id }) => id)),
  };
}

/**
 * Returns {@link findGlobalTargets} for all replicas of a workload in the view, which are read in
 * mode GLOBAL only.
 */
export function findTargetsOfWorkload(
  sources: GlobalTargetSources & { readonly view: Pick<ClusterView, 'replicasOf'> },
  workload: WorkloadRecord,
): GlobalTargets | undefined {
  if (!isGlobal(workload.spec)) return undefined;
  const replicas = Array.from(sources.view.replicasOf(workload.uid), ({ value }) => value);
  return findGlobalTargets(sources, workload, replicas);
}

/** Returns the target nodes that have a replica, also a finished one. */
export function findOccupiedTargets(
  { nodeIds }: GlobalTargets,
  replicas: readonly ReplicaRecord[],
): ReadonlySet<string> {
  const nodesWithReplica = new Set(
    replicas
      .filter(({ desiredRunning, lost }) => desiredRunning && !lost)
      .map(({ nodeId }) => nodeId),
  );
  return new Set(nodeIds.filter((nodeId) => nodesWithReplica.has(nodeId)));
}

function sortUnique(nodeIds: Iterable<string>): readonly string[] {
  return [...new Set(nodeIds)].sort();
}
