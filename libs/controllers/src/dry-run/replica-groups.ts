import { create } from '@bufbuild/protobuf';
import { WorkloadSpecSchema } from '@cloudless/api';
import type { ReplicaRecord, WorkloadRecord } from '@cloudless/api/store';
import {
  isLive,
  toCanonicalVersion,
  waitsForNode,
  type ClusterView,
} from '@cloudless/cluster-state';
import { toMs } from '../common/duration.js';
import { getSpecWithDefaults } from '../common/spec-defaults.js';
import { findEviction, findRequestedEviction } from '../drain/eviction.js';
import { isFinished } from '../replica/finished.js';
import type { ReadinessTracker } from '../rollout/readiness-tracker.js';

/**
 * The replicas of a workload by what a rolling update does with them. All replicas of one of the
 * four lists are alike for the rollout planner, so a prediction needs to simulate only some of
 * them.
 */
export interface ReplicaGroups {
  /** Available replicas of the wanted version. Ascending by sequence number, as the next three. */
  readonly available: readonly ReplicaRecord[];
  /** Replicas of the wanted version that wait for any node. */
  readonly waiting: readonly ReplicaRecord[];
  /** Available replicas of other versions. */
  readonly outdated: readonly ReplicaRecord[];
  /** Replicas of other versions that wait for any node. */
  readonly outdatedWaiting: readonly ReplicaRecord[];
  /** All other replicas, for example those that start, stop, or have to leave their nodes. */
  readonly others: readonly ReplicaRecord[];
  /** How many of {@link others} have the wanted version and count as existing. */
  readonly othersOfVersion: number;
  /** How many of {@link others} have not ended. */
  readonly liveOthers: number;
  /** Number of replicas in all groups that count as existing. */
  readonly existing: number;
  /** Number of replicas that have finished for good, and count towards the wanted number. */
  readonly finished: number;
}

/** The state that {@link groupReplicas} reads. */
export interface ReplicaGroupSources {
  readonly view: Pick<ClusterView, 'node' | 'version' | 'control'>;
  readonly readiness: Pick<ReadinessTracker, 'readyForMs'>;
  /** Wall-clock milliseconds. */
  readonly nowMs: number;
}

/** Returns true for a replica that counts among those that the spec asks for. */
export function isExisting(replica: ReplicaRecord): boolean {
  return isLive(replica) && !replica.lost && replica.desiredRunning;
}

/** Replicas that are grouped between two pauses, which takes about 10 ms. */
export const GROUPED_PER_SLICE = 10_000;

/**
 * Groups the replicas of a workload. Reads each replica once.
 * @returns The groups. Yields whenever other work should run.
 */
export function* groupReplicas(
  sources: ReplicaGroupSources,
  workload: WorkloadRecord,
  replicas: readonly ReplicaRecord[],
): Generator<void, ReplicaGroups> {
  const { view, nowMs } = sources;
  const requested = findRequestedEviction(view.control(workload.uid)?.value, nowMs).replicaIds;
  const isOfWantedVersion = createVersionTest(view, workload);
  const isAvailable = createAvailabilityTest(sources, workload);
  const lists = {
    available: [] as ReplicaRecord[],
    waiting: [] as ReplicaRecord[],
    outdated: [] as ReplicaRecord[],
    outdatedWaiting: [] as ReplicaRecord[],
  };
  const others: ReplicaRecord[] = [];
  const counts = { othersOfVersion: 0, liveOthers: 0, existing: 0, finished: 0 };
  for (const [index, replica] of replicas.entries()) {
    if (index > 0 && index % GROUPED_PER_SLICE === 0) yield;
    const exists = isExisting(replica);
    const isWanted = isOfWantedVersion(replica);
    if (exists) counts.existing += 1;
    if (exists && !requested.has(replica.id)) {
      if (waitsForAnyNode(replica)) {
        (isWanted ? lists.waiting : lists.outdatedWaiting).push(replica);
        continue;
      }
      if (isAvailable(replica)) {
        (isWanted ? lists.available : lists.outdated).push(replica);
        continue;
      }
    }
    others.push(replica);
    if (exists && isWanted) counts.othersOfVersion += 1;
    if (isLive(replica)) counts.liveOthers += 1;
    else if (replica.desiredRunning && isFinished(view, workload, replica)) counts.finished += 1;
  }
  for (const list of Object.values(lists)) sortBySequence(list);
  return { ...lists, others, ...counts };
}

/** Sorts in place, unless the replicas are sorted already, as those of a view mostly are. */
export function sortBySequence(replicas: ReplicaRecord[]): readonly ReplicaRecord[] {
  let last = -1n;
  for (const { sequence } of replicas) {
    if (sequence < last) return replicas.sort((a, b) => Number(a.sequence - b.sequence));
    last = sequence;
  }
  return replicas;
}

/** Returns a test for replicas with the template of the workload's wanted version. */
function createVersionTest(
  view: Pick<ClusterView, 'version'>,
  { uid, version: wanted }: WorkloadRecord,
): (replica: ReplicaRecord) => boolean {
  const canonical = toCanonicalVersion(view, uid, wanted);
  const isWantedVersion = new Map<number, boolean>();
  return ({ version }) => {
    const known = isWantedVersion.get(version);
    if (known !== undefined) return known;
    const isWanted = toCanonicalVersion(view, uid, version) === canonical;
    isWantedVersion.set(version, isWanted);
    return isWanted;
  };
}

/** Returns a test for available replicas that may stay on their nodes. */
function createAvailabilityTest(
  { view, readiness, nowMs }: ReplicaGroupSources,
  workload: WorkloadRecord,
): (replica: ReplicaRecord) => boolean {
  const spec = getSpecWithDefaults(workload.spec ?? NO_SPEC);
  const minReadyMs = toMs(spec.rollout?.minReadyDuration);
  const mayStay = createStayTest(view, nowMs);
  return (replica) => {
    const readyForMs = replica.nodeId === '' ? undefined : readiness.readyForMs(replica);
    return readyForMs !== undefined && readyForMs >= minReadyMs && mayStay(replica);
  };
}

/**
 * Returns a test for replicas that may stay on their nodes: they need not leave now, nor later only
 * because time passes.
 */
function createStayTest(
  view: Pick<ClusterView, 'node' | 'version'>,
  nowMs: number,
): (replica: ReplicaRecord) => boolean {
  /**
   * By node id: true for a node on which every replica may stay, whatever the replica tolerates.
   */
  const keepsAll = new Map<string, boolean>();
  const keepsAllReplicas = (nodeId: string): boolean => {
    const known = keepsAll.get(nodeId);
    if (known !== undefined) return known;
    const node = view.node(nodeId)?.value;
    const keeps =
      node === undefined ||
      (!node.draining && node.taints.length === 0 && (node.hello?.taints ?? []).length === 0);
    keepsAll.set(nodeId, keeps);
    return keeps;
  };
  return (replica) => {
    if (keepsAllReplicas(replica.nodeId)) return true;
    const { draining, changesInMs } = findEviction(view, replica, nowMs);
    return !draining && changesInMs === undefined;
  };
}

/** Returns true for a waiting replica that is neither bound to one node nor nominated for one. */
function waitsForAnyNode(replica: ReplicaRecord): boolean {
  return waitsForNode(replica) && replica.onlyNodeId === '' && replica.nominatedNodeId === '';
}

const NO_SPEC = create(WorkloadSpecSchema);
