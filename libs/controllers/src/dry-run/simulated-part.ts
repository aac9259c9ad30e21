import { create } from '@bufbuild/protobuf';
import { WorkloadSpecSchema } from '@cloudless/api';
import type { ReplicaRecord, WorkloadRecord } from '@cloudless/api/store';
import {
  isLive,
  toCanonicalVersion,
  waitsForNode,
  type ClusterView,
} from '@cloudless/cluster-state';
import type { RolloutLimits } from '@cloudless/rollout';
import { toMs } from '../common/duration.js';
import { getSpecWithDefaults } from '../common/spec-defaults.js';
import { findEviction, findRequestedEviction } from '../drain/eviction.js';
import { isFinished } from '../replica/finished.js';
import type { ReadinessTracker } from '../rollout/readiness-tracker.js';
import type { PlacementBudget } from './placement-budget.js';

/** The replicas of a workload, of which a prediction simulates only a part one by one. */
export interface SimulatedPart {
  readonly simulated: readonly ReplicaRecord[];
  /** Available replicas of the wanted version, which stay. */
  readonly staying: readonly ReplicaRecord[];
  /** Available replicas of other versions, to be replaced after the simulated ones. */
  readonly replacedLater: readonly ReplicaRecord[];
  /** Replicas of the wanted version that wait for a node, as simulated ones do. */
  readonly waiting: readonly ReplicaRecord[];
  /**
   * Replicas of other versions that wait for a node, and stop at once. As many new replicas are not
   * simulated either.
   */
  readonly stopping: readonly ReplicaRecord[];
}

/** The state that the choice of a {@link SimulatedPart} reads. */
export interface SimulatedPartSources {
  readonly view: Pick<ClusterView, 'node' | 'version' | 'control'>;
  readonly readiness: Pick<ReadinessTracker, 'readyForMs'>;
  readonly nowMs: number;
}

/** Returns the part of a prediction that simulates every replica. */
export const simulateAll = (replicas: readonly ReplicaRecord[]): SimulatedPart => ({
  ...{ simulated: replicas, staying: [], replacedLater: [], waiting: [], stopping: [] },
});

/**
 * Chooses the replicas of a large workload that a prediction simulates one by one. Leaves out replicas
 * about which no decision of the simulated rollout is made, or that follow simulated equal ones, so
 * that a prediction takes as long as the change is large. Only for a rolling update without canary
 * steps.
 * @param limits - Of the whole workload.
 * @param isPlaceable - Returns true when a node fits a waiting replica of the version now.
 */
export function chooseSimulatedPart(
  groups: ReplicaGroups,
  limits: RolloutLimits,
  budget: PlacementBudget,
  isPlaceable: (version: number) => boolean,
): SimulatedPart {
  const { others, available, waiting, outdated, outdatedWaiting } = groups;
  // A rollout of which a whole batch, and its replacements, were simulated goes on in the same way.
  const batches = 2 * (limits.batch + limits.maxSurge);
  const simulated = Math.max(1, budget.maxSimulated);
  const replaced = Math.max(simulated, batches);
  const hasOnlyOutdatedWaiting =
    available.length + waiting.length + outdated.length + groups.liveOthers === 0;
  const waitingVersions = new Set(outdatedWaiting.map(({ version }) => version));
  if (hasOnlyOutdatedWaiting && ![...waitingVersions].some(isPlaceable)) {
    // All replicas are new: those that are not simulated leave out as many that stop.
    const count = Math.min(outdatedWaiting.length, limits.want);
    const created = budget.consumeNewReplicas(Math.min(count, replaced));
    const [stopping, rest] = splitAt(outdatedWaiting, count - created);
    return { ...simulateAll(sortBySequence([...others, ...rest])), stopping };
  }
  const current = available.length + waiting.length + groups.othersOfVersion;
  // The surplus stops in disruption order, the newest first.
  const surplus = Math.max(0, current - limits.want);
  // At least one waiting replica shows whether a node fits the others.
  const [waitingLater, simulatedWaiting] = splitAtEnd(waiting, Math.max(surplus, simulated));
  const [staying, simulatedAvailable] = splitAtEnd(available, surplus);
  const later = Math.min(
    outdated.length - replaced,
    // Each replica to be replaced later keeps one of the wanted places.
    limits.want - current - batches,
  );
  const [replacedLater, simulatedOutdated] = splitAt(outdated, Math.max(0, later));
  return {
    simulated: sortBySequence([
      ...others,
      ...simulatedAvailable,
      ...simulatedWaiting,
      ...simulatedOutdated,
      ...outdatedWaiting,
    ]),
    ...{ staying, replacedLater, waiting: waitingLater, stopping: [] },
  };
}

/** The live replicas of a workload by what a rollout does about them. */
export interface ReplicaGroups {
  /** Replicas that each need their own simulation. */
  readonly others: readonly ReplicaRecord[];
  /** How many of {@link others} have the wanted version and are to run. */
  readonly othersOfVersion: number;
  /** How many of {@link others} may hold resources. */
  readonly liveOthers: number;
  /** Number of replicas that are to run and are not lost. */
  readonly existing: number;
  /** Number of replicas that have finished for good, and count as wanted ones. */
  readonly finished: number;
  // The other groups are in ascending order of their sequence numbers.
  readonly available: readonly ReplicaRecord[];
  readonly waiting: readonly ReplicaRecord[];
  readonly outdated: readonly ReplicaRecord[];
  readonly outdatedWaiting: readonly ReplicaRecord[];
}

/** Groups the replicas of a workload in one pass. */
export function groupReplicas(
  { view, readiness, nowMs }: SimulatedPartSources,
  workload: WorkloadRecord,
  replicas: readonly ReplicaRecord[],
): ReplicaGroups {
  const { uid } = workload;
  const spec = getSpecWithDefaults(workload.spec ?? NO_SPEC);
  const minReadyMs = toMs(spec.rollout?.minReadyDuration);
  const requested = findRequestedEviction(view.control(uid)?.value, nowMs).replicaIds;
  const wanted = toCanonicalVersion(view, uid, workload.version);
  const isWantedVersion = new Map<number, boolean>();
  const isOfVersion = ({ version }: ReplicaRecord): boolean => {
    const known = isWantedVersion.get(version);
    if (known !== undefined) return known;
    const isWanted = toCanonicalVersion(view, uid, version) === wanted;
    isWantedVersion.set(version, isWanted);
    return isWanted;
  };
  const mayStayOn = createNodeTest(view, nowMs);
  const isAvailable = (replica: ReplicaRecord): boolean => {
    const readyForMs = replica.nodeId === '' ? undefined : readiness.readyForMs(replica);
    return readyForMs !== undefined && readyForMs >= minReadyMs && mayStayOn(replica);
  };
  const groups = {
    others: [] as ReplicaRecord[],
    ...{ othersOfVersion: 0, liveOthers: 0, existing: 0, finished: 0 },
    available: [] as ReplicaRecord[],
    waiting: [] as ReplicaRecord[],
    outdated: [] as ReplicaRecord[],
    outdatedWaiting: [] as ReplicaRecord[],
  };
  for (const replica of replicas) {
    const stays = isExisting(replica);
    const isCurrent = isOfVersion(replica);
    if (stays) groups.existing += 1;
    if (stays && (requested.size === 0 || !requested.has(replica.id))) {
      if (isWaitingAnywhere(replica)) {
        (isCurrent ? groups.waiting : groups.outdatedWaiting).push(replica);
        continue;
      }
      if (isAvailable(replica)) {
        (isCurrent ? groups.available : groups.outdated).push(replica);
        continue;
      }
    }
    groups.others.push(replica);
    if (stays && isCurrent) groups.othersOfVersion += 1;
    if (isLive(replica)) groups.liveOthers += 1;
    else if (replica.desiredRunning && isFinished(view, workload, replica)) groups.finished += 1;
  }
  for (const group of [groups.available, groups.waiting, groups.outdated, groups.outdatedWaiting])
    sortBySequence(group);
  return groups;
}

/** Returns true for a replica that counts among those that the spec asks for. */
export function isExisting(replica: ReplicaRecord): boolean {
  return isLive(replica) && !replica.lost && replica.desiredRunning;
}

/** Returns true for a replica that waits for any node, none of which is nominated for the replica. */
function isWaitingAnywhere(replica: ReplicaRecord): boolean {
  return waitsForNode(replica) && replica.onlyNodeId === '' && replica.nominatedNodeId === '';
}

/** Returns a test for replicas that neither have to leave their nodes now nor by time alone. */
function createNodeTest(
  view: Pick<ClusterView, 'node' | 'version'>,
  nowMs: number,
): (replica: ReplicaRecord) => boolean {
  /** Nodes that no replica has to leave, whatever the replica tolerates. */
  const known = new Map<string, boolean>();
  const isFree = (nodeId: string): boolean => {
    const found = known.get(nodeId);
    if (found !== undefined) return found;
    const node = view.node(nodeId)?.value;
    const free =
      node === undefined ||
      (!node.draining && node.taints.length === 0 && (node.hello?.taints ?? []).length === 0);
    known.set(nodeId, free);
    return free;
  };
  return (replica) => {
    if (isFree(replica.nodeId)) return true;
    const { draining, changesInMs } = findEviction(view, replica, nowMs);
    return !draining && changesInMs === undefined;
  };
}

/** Sorts in place, unless the replicas are sorted, as those of a view mostly are. */
export function sortBySequence(replicas: ReplicaRecord[]): readonly ReplicaRecord[] {
  let last = -1n;
  for (const { sequence } of replicas) {
    if (sequence < last) return replicas.sort((a, b) => Number(a.sequence - b.sequence));
    last = sequence;
  }
  return replicas;
}

function splitAt<Item>(
  items: readonly Item[],
  index: number,
): readonly [readonly Item[], readonly Item[]] {
  return [items.slice(0, index), items.slice(index)];
}

/** @param count - Number of items in the second part, if there are as many. */
const splitAtEnd = <Item>(items: readonly Item[], count: number) =>
  splitAt(items, Math.max(0, items.length - count));

const NO_SPEC = create(WorkloadSpecSchema);
