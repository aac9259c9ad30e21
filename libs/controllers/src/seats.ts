import { create } from '@bufbuild/protobuf';
import { WorkloadSpec_Mode as Mode, WorkloadSpecSchema, type WorkloadSpec } from '@cloudless/api';
import type { ReplicaRecord, WorkloadRecord } from '@cloudless/api/store';
import type { Clock } from '@cloudless/base';
import { canonicalVersion, isLive, type ClusterView } from '@cloudless/cluster-state';
import type { Cluster } from '@cloudless/scheduler';
import { movingOf } from './moving.js';
import { toPlacementRequest, toStayingRequest } from './scheduler-input.js';
import { isFinal } from './workload-pass.js';

export interface SeatSources {
  readonly view: Pick<ClusterView, 'node' | 'version'>;
  readonly cluster: Pick<Cluster, 'eligible'>;
  readonly clock: Pick<Clock, 'wallTime'>;
}

/** The target nodes of a workload in mode GLOBAL. All lists of ids are sorted. */
export interface Seats {
  /**
   * All target nodes, also those whose replica has finished. Their number is the wanted count of
   * the workload.
   */
  readonly nodeIds: readonly string[];
  /**
   * Target nodes where the planner keeps a replica: all but {@link ended} and those of {@link
   * pinned}.
   */
  readonly open: readonly string[];
  /** Target nodes whose replica has finished. The replica does not run there again. */
  readonly ended: readonly string[];
  /**
   * Ids of replicas of another version on nodes that accept nothing new. No replacement could be
   * placed there, so they stay until the node accepts replicas again. The planner does not see
   * them.
   */
  readonly frozen: ReadonlySet<string>;
}

/** Tells whether a workload runs one replica on each fitting node, as a DaemonSet does. */
export function isGlobal(spec: Pick<WorkloadSpec, 'mode'> | undefined): boolean {
  return spec?.mode === Mode.GLOBAL;
}

/**
 * The nodes on which a GLOBAL workload has or gets a replica: all nodes that fit, free capacity
 * aside. A node that accepts nothing new (cordoned, quarantined, silent, lost but its replica not
 * yet replaced, or under a NO_SCHEDULE taint) keeps its replica. A node that is drained or no
 * longer fits loses it.
 * @returns Undefined for a workload in mode REPLICATED.
 */
export function seatsOf(
  sources: SeatSources,
  workload: WorkloadRecord,
  replicas: readonly ReplicaRecord[],
): Seats | undefined {
  if (!isGlobal(workload.spec)) return undefined;
  const spec = workload.spec ?? create(WorkloadSpecSchema);
  const nowMs = sources.clock.wallTime();
  const takesNew = new Set<string>();
  const eligible = sources.cluster.eligible(toPlacementRequest(workload, spec));
  for (const node of eligible) if (node.takesNew) takesNew.add(node.nodeId);
  const isForATime =
    spec.placement?.tolerations.some(({ tolerationPeriod }) => tolerationPeriod !== undefined) ??
    false;
  const staying = isForATime
    ? sources.cluster.eligible(toStayingRequest(workload, spec))
    : eligible;
  const mayStay = new Set<string>(staying.map(({ nodeId }) => nodeId));
  const wanted = replicas.filter(
    ({ nodeId, desiredRunning, lost }) => nodeId !== '' && desiredRunning && !lost,
  );
  const ended = new Set(
    wanted
      .filter((replica) => isFinal(sources.view, workload, replica))
      .map(({ nodeId }) => nodeId),
  );
  const stays = (replica: ReplicaRecord): boolean =>
    mayStay.has(replica.nodeId) && !movingOf(sources.view, replica, nowMs).draining;
  const closed = wanted.filter(
    (replica) => !takesNew.has(replica.nodeId) && isLive(replica) && stays(replica),
  );
  const canonical = (version: number): number =>
    canonicalVersion(sources.view, workload.uid, version);
  const isCurrent = ({ version }: ReplicaRecord): boolean =>
    canonical(version) === canonical(workload.version);
  const current = new Set(closed.filter(isCurrent).map(({ nodeId }) => nodeId));
  const frozen = closed.filter(({ nodeId }) => !current.has(nodeId) && !ended.has(nodeId));
  const isOpen = (nodeId: string): boolean => !ended.has(nodeId);
  return {
    nodeIds: inOrder([...takesNew, ...ended, ...closed.map(({ nodeId }) => nodeId)]),
    open: inOrder([...takesNew, ...current]).filter(isOpen),
    ended: inOrder(ended),
    frozen: new Set(frozen.map(({ id }) => id)),
  };
}

/** The target nodes that have their replica, also a finished one. */
export function servedOf(
  { nodeIds }: Seats,
  replicas: readonly ReplicaRecord[],
): ReadonlySet<string> {
  const held = new Set(
    replicas
      .filter(({ desiredRunning, lost }) => desiredRunning && !lost)
      .map(({ nodeId }) => nodeId),
  );
  return new Set(nodeIds.filter((nodeId) => held.has(nodeId)));
}

function inOrder(nodeIds: Iterable<string>): readonly string[] {
  return [...new Set(nodeIds)].sort();
}
