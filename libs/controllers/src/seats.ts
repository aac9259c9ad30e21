import { create } from '@bufbuild/protobuf';
import { WorkloadSpec_Mode as Mode, WorkloadSpecSchema, type WorkloadSpec } from '@cloudless/api';
import type { ReplicaRecord, WorkloadRecord } from '@cloudless/api/store';
import type { Clock } from '@cloudless/base';
import { canonicalVersion, isLive, type ClusterView } from '@cloudless/cluster-state';
import type { Cluster } from '@cloudless/scheduler';
import { movingOf } from './moving.js';
import { toPlacementRequest, toStayingRequest } from './scheduler-input.js';
import { isFinal } from './workload-pass.js';

/** What {@link seatsOf} reads. */
export interface SeatSources {
  readonly view: Pick<ClusterView, 'node' | 'version'>;
  readonly cluster: Pick<Cluster, 'eligible'>;
  readonly clock: Pick<Clock, 'wallTime'>;
}

/** Where a workload in mode GLOBAL has its replicas, or is to have them. Ids in order. */
export interface Seats {
  /**
   * All of them, also where a replica has run to its end: what the workload shows as its wanted
   * count.
   */
  readonly nodeIds: readonly string[];
  /** Those where the planner keeps a replica: without those of {@link ended} and {@link frozen}. */
  readonly open: readonly string[];
  /** Nodes whose replica has run to its end: it does not run there again. */
  readonly ended: readonly string[];
  /**
   * Ids of replicas of another version on nodes that take nothing new. Nothing could take their
   * place there, so they stay as they are until the node takes new ones again; the planner does not
   * see them.
   */
  readonly frozen: ReadonlySet<string>;
}

/** Whether it has one replica on each fitting node, instead of a number of them. */
export function isGlobal(spec: Pick<WorkloadSpec, 'mode'> | undefined): boolean {
  return spec?.mode === Mode.GLOBAL;
}

/**
 * The nodes on which a GLOBAL workload is to have a replica: those that fit by everything but room.
 * One that takes nothing new (cordoned, quarantined, silent, lost but its replica not given up,
 * under a NO_SCHEDULE taint) keeps the replica it has; one that is drained or does not fit any more
 * loses it. Undefined for a workload that is REPLICATED.
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

/** Seats that have their replica, also where it has run to its end. */
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
