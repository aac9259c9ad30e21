import { equals } from '@bufbuild/protobuf';
import { timestampMs } from '@bufbuild/protobuf/wkt';
import {
  ReplicaStatus_Phase as Phase,
  listHostPorts,
  Rollout_Strategy as Strategy,
  Taint_Effect as Effect,
  WorkloadSpecSchema,
  type NodeCapacity,
} from '@cloudless/api';
import type { ReplicaRecord, WorkloadRecord } from '@cloudless/api/store';
import { holdsResources, isLive, type RecordChange } from '@cloudless/cluster-state';
import { sumAllocated } from '@cloudless/controllers';
import type { CheckedView } from '../parts/durable-records.js';
import type { NodeFacts } from '../parts/node-facts.js';
import { findCrowdedNodes, isGlobal, resolveGlobalLimits } from './global-checks.js';
import { untoleratedTaints } from './node-access.js';
import { createdReplicas, findPreempted, findReplicaChanges } from './commit-changes.js';
import { nominationsFit, preemptionsFollowPriorities } from './preemption-checkers.js';
import {
  ceilingOf,
  factsOf,
  countEndedOfPreviousVersion,
  msOf,
  settingsOf,
  type RolloutFacts,
} from './rollout-facts.js';

/** Input of a commit checker: one commit, with the records after it. */
export interface Commit {
  readonly view: CheckedView;
  readonly changes: readonly RecordChange[];
  /** The facts about the nodes that the coordinator had when it decided the commit. */
  readonly nodeFacts: NodeFacts;
}

/**
 * Checks one commit.
 * @returns The violations. A violation begins with the number of its invariant in
 *   docs/reliability.md, where the text alone would not identify the invariant.
 */
export type Checker = (commit: Commit) => readonly string[];

/**
 * Invariant 7: a replica never moves, and its phase and orders only go forward. A lost replica may
 * continue in a commit that deletes the waiting replacement and by which its lost node returns, or
 * which writes the record of the lost node because more replicas continue.
 */
export const replicasNeverMove: Checker = ({ changes }) =>
  findReplicaChanges(changes).flatMap(({ before, after }) => {
    if (before === undefined || after === undefined) return [];
    if (isTakenBack(before, after, changes)) return [];
    return [
      ...(before.nodeId !== '' && before.nodeId !== after.nodeId
        ? [`${after.id} moved from ${before.nodeId} to ${after.nodeId}`]
        : []),
      ...(after.phase < before.phase && !after.lost
        ? [`${after.id} went back from phase ${before.phase} to ${after.phase}`]
        : []),
      ...(after.orderRevision < before.orderRevision
        ? [`${after.id} has an older order revision than before`]
        : []),
      ...(after.desiredRunning && !before.desiredRunning
        ? [`${after.id} is wanted again after its stop was requested`]
        : []),
      ...(before.lost && !after.lost ? [`${after.id} was declared lost and is no longer`] : []),
    ];
  });

function isTakenBack(
  before: ReplicaRecord,
  after: ReplicaRecord,
  changes: readonly RecordChange[],
): boolean {
  const isReturn = changes.some(
    (change) =>
      change.kind === 'node' &&
      change.id === before.nodeId &&
      change.before?.lost === true &&
      change.after !== undefined,
  );
  const isReplacementDeleted = findReplicaChanges(changes).some(
    ({ before: replaced, after: kept }) =>
      kept === undefined &&
      replaced?.uid === before.uid &&
      replaced.slot === before.slot &&
      replaced.nodeId === '',
  );
  return (
    before.lost &&
    !after.lost &&
    before.stopAfter === undefined &&
    before.phase === Phase.FAILED &&
    before.nodeId === after.nodeId &&
    after.orderRevision > before.orderRevision &&
    isReturn &&
    isReplacementDeleted
  );
}

/**
 * Invariant 6: no creation exceeds the ceiling of its workload, and under RECREATE no creation
 * happens beside another version.
 */
export const creationsKeepCeiling: Checker = ({ view, changes, nodeFacts }) => {
  const created = createdReplicas(changes);
  return [...new Set(created.map(({ uid }) => uid))].flatMap((uid) => {
    const workload = view.workload(uid)?.value;
    if (workload === undefined) return [`${uid} has a new replica but does not exist`];
    const facts = factsOf(view, workload);
    if (isGlobal(workload)) return findCrowdedNodes(facts);
    const { live, strategy, canonicalVersion } = facts;
    const ceiling = ceilingOf(view, facts, nodeFacts);
    const createdVersions = created
      .filter((replica) => replica.uid === uid)
      .map(({ version }) => canonicalVersion(version));
    const beside = live.filter(
      ({ version }) => !createdVersions.includes(canonicalVersion(version)),
    );
    return [
      ...(live.length > ceiling
        ? [`${workload.name} has ${live.length} live replicas, but its ceiling is ${ceiling}`]
        : []),
      ...(strategy === Strategy.RECREATE && !facts.isHalted && beside.length > 0
        ? [
            `${workload.name} has new replicas beside ${beside.length} of another version, but its strategy is RECREATE`,
          ]
        : []),
    ];
  });
};

/**
 * Invariant 9: no voluntary stop leaves fewer available replicas than `min_available`. Invariant
 * 10: no voluntary stop leaves fewer than the wanted count minus one batch. Under BLUE_GREEN only
 * the serving version counts, RECREATE may stop other versions at any time, and a forced drain has
 * no floor.
 */
export const stopsKeepMinAvailable: Checker = (commit) => {
  const { view, changes, nodeFacts } = commit;
  const serves = (replica: ReplicaRecord): boolean =>
    replica.ready && isLive(replica) && nodeFacts.alive.has(replica.nodeId);
  const stopped = findReplicaChanges(changes).flatMap(({ before, after }) => {
    const isVoluntary =
      before?.desiredRunning === true &&
      after !== undefined &&
      !after.desiredRunning &&
      !after.lost &&
      isLive(after);
    return isVoluntary && serves(before) ? [before] : [];
  });
  const preempted = new Set(findPreempted(changes).map(({ id }) => id));
  return [...new Set(stopped.map(({ uid }) => uid))].flatMap((uid) => {
    const workload = view.workload(uid)?.value;
    if (workload === undefined) return [];
    const facts = factsOf(view, workload);
    const isAvailable = createAvailabilityCheck(facts, commit);
    const counts = (replica: ReplicaRecord): boolean =>
      countsForMinAvailable(facts, replica) && !isForced(view, replica, nodeFacts);
    const stoppedCounting = stopped.filter(
      (replica) => replica.uid === uid && counts(replica) && !isStopOfRecreate(facts, replica),
    );
    if (stoppedCounting.length === 0) return [];
    const stoppedOfWorkload = stopped.filter((replica) => replica.uid === uid);
    const isNotStopped = ({ id }: ReplicaRecord): boolean =>
      stoppedOfWorkload.every((replica) => replica.id !== id);
    const isReady = (replica: ReplicaRecord): boolean =>
      replica.desiredRunning && counts(replica) && serves(replica) && isAvailable(replica);
    const ready = facts.live.filter(isReady).length + countEndedOfPreviousVersion(view, facts);
    const { minAvailable, want, batch } = isGlobal(workload)
      ? resolveGlobalLimits(
          view,
          workload,
          [...facts.live.filter(isNotStopped), ...stoppedOfWorkload],
          nodeFacts,
        )
      : facts.limits;
    const wasAvailable = createAvailabilityCheck(facts, commit, nodeFacts.readyForMaxErrorMs);
    // A preemption goes down to min_available at once, whatever the batch of an update is.
    const required = stoppedCounting.some(
      (replica) => wasAvailable(replica) && !preempted.has(replica.id),
    )
      ? Math.max(minAvailable, want - batch)
      : minAvailable;
    if (ready >= required) return [];
    return ready < minAvailable
      ? [
          `${workload.name} has ${ready} ready replicas after a voluntary stop, but min_available is ${minAvailable}`,
        ]
      : [
          `10: ${workload.name} has ${ready} ready replicas after a voluntary stop before ${want - batch} of ${want} were ready again`,
        ];
  });
};

/** Returns true for all replicas; under BLUE_GREEN only for replicas of the active version. */
function countsForMinAvailable(
  { strategy, active, canonicalVersion }: RolloutFacts,
  { version }: ReplicaRecord,
): boolean {
  return strategy !== Strategy.BLUE_GREEN || canonicalVersion(version) === active;
}

/** Returns true when the stop of a replica is a step of a RECREATE rollout. */
function isStopOfRecreate(
  { strategy, wanted, canonicalVersion, isInProgress }: RolloutFacts,
  { version }: ReplicaRecord,
): boolean {
  return strategy === Strategy.RECREATE && isInProgress && canonicalVersion(version) !== wanted;
}

/**
 * Returns true when the node's drain is forced, its deadline, if any, has passed, and the node was
 * draining in the view of the coordinator at the decision. A drain that became durable later is no
 * condition of the commit, so the decision counts the replicas of that node.
 */
function isForced(
  view: CheckedView,
  { nodeId }: ReplicaRecord,
  { draining: knownDraining, wallMs }: NodeFacts,
): boolean {
  const { drain, draining = false } = view.node(nodeId)?.value ?? {};
  if (!draining || !knownDraining.has(nodeId) || drain?.force !== true) return false;
  return (
    drain.deadline === undefined || (wallMs !== undefined && timestampMs(drain.deadline) <= wallMs)
  );
}

/**
 * Returns a predicate that is true for a replica that the coordinator had seen ready for at least
 * min_ready_duration and `marginMs`.
 */
function createAvailabilityCheck(
  { workload }: RolloutFacts,
  { nodeFacts: { readyForMs } }: Commit,
  marginMs = 0,
): (replica: ReplicaRecord) => boolean {
  const minReadyMs = msOf(settingsOf(workload)?.minReadyDuration);
  return ({ id }) =>
    readyForMs === undefined || (readyForMs.get(id) ?? -1) >= minReadyMs + marginMs;
}

/**
 * Invariant 8: no placement exceeds the capacity of a node, uses a held host port, or goes to a
 * node that is not schedulable or has an untolerated taint.
 */
export const placementsFit: Checker = ({ view, changes, nodeFacts }) => {
  const placed = findReplicaChanges(changes).flatMap(({ before, after }) =>
    after !== undefined && after.nodeId !== '' && before?.nodeId !== after.nodeId ? [after] : [],
  );
  const taintViolations = placed.flatMap((replica) => {
    const { nodeId } = replica;
    const [taint] = untoleratedTaints(view, replica, nodeId, nodeFacts).filter(
      ({ effect }) => effect !== Effect.PREFER_NO_SCHEDULE,
    );
    return taint === undefined
      ? []
      : [`${replica.id} was placed on ${nodeId}, whose taint ${taint.key} it does not tolerate`];
  });
  const capacityViolations = [...new Set(placed.map(({ nodeId }) => nodeId))].flatMap((nodeId) => {
    const node = view.node(nodeId)?.value;
    if (node === undefined) return [`a replica was placed on ${nodeId}, which does not exist`];
    const held = [...view.replicasOn(nodeId)].map(({ value }) => value).filter(holdsResources);
    return [
      ...findExcess(view, nodeId, node.hello?.capacity),
      ...findPortConflicts(view, held).map((port) => `${nodeId} assigns host port ${port} twice`),
      ...(nodeFacts.cordoned.has(nodeId)
        ? [`a replica was placed on ${nodeId}, which is cordoned`]
        : []),
      ...(nodeFacts.alive.has(nodeId)
        ? []
        : [`a replica was placed on ${nodeId}, which is not connected`]),
    ];
  });
  return [...capacityViolations, ...taintViolations];
};

/**
 * Invariant 17: while the agent of a node is away in good order, only its EXCLUSIVE replicas, which
 * end without an agent, are declared lost.
 */
export const graceKeepsReplicas: Checker = ({ view, changes }) =>
  findReplicaChanges(changes).flatMap(({ before, after }) => {
    if (before?.lost !== false || after?.lost !== true) return [];
    const node = view.node(after.nodeId)?.value;
    return node === undefined || node.lost || before.stopAfter !== undefined
      ? []
      : [`${after.id} was declared lost, but its node ${after.nodeId} is not`];
  });

/** Invariant 17: only replicas on nodes that are not alive are declared lost. */
export const onlyDeadNodesLoseReplicas: Checker = ({ changes, nodeFacts }) =>
  findReplicaChanges(changes).flatMap(({ before, after }) =>
    before?.lost === false && after?.lost === true && nodeFacts.alive.has(after.nodeId)
      ? [`${after.id} was declared lost on a node that is alive`]
      : [],
  );

/** Invariant 13: generations and versions only grow, and only users delete workloads. */
export const specsOnlyGoForward: Checker = ({ changes }) =>
  changes.flatMap(({ kind, before, after }) => {
    if (kind !== 'workload' || before === undefined) return [];
    const [former, current] = [before as WorkloadRecord, after as WorkloadRecord | undefined];
    if (current === undefined)
      return former.deletionRequestedAt === undefined
        ? [`${former.name} disappeared without a deletion`]
        : [];
    const isSame =
      former.spec !== undefined &&
      current.spec !== undefined &&
      equals(WorkloadSpecSchema, former.spec, current.spec);
    return [
      ...(current.version < former.version
        ? [`${current.name} went back from version ${former.version} to ${current.version}`]
        : []),
      ...(current.generation < former.generation
        ? [
            `${current.name} went back from generation ${former.generation} to ${current.generation}`,
          ]
        : []),
      ...(!isSame && current.generation === former.generation
        ? [`${current.name} changed within generation ${current.generation}`]
        : []),
      ...(former.deletionRequestedAt !== undefined && current.deletionRequestedAt === undefined
        ? [`${current.name} is wanted again`]
        : []),
    ];
  });

/** Invariant 3: the outcome of a request id is written once. */
export const requestsAreAppliedOnce: Checker = ({ changes }) =>
  changes.flatMap(({ kind, id, before, after }) =>
    kind === 'request' && before !== undefined && after !== undefined
      ? [`request ${id} was applied twice`]
      : [],
  );

/** All checkers of commits. */
export const COMMIT_CHECKERS: readonly Checker[] = [
  replicasNeverMove,
  creationsKeepCeiling,
  stopsKeepMinAvailable,
  placementsFit,
  preemptionsFollowPriorities,
  nominationsFit,
  onlyDeadNodesLoseReplicas,
  graceKeepsReplicas,
  specsOnlyGoForward,
  requestsAreAppliedOnce,
];

/** Returns the host ports that more than one of these replicas of one node hold. */
function findPortConflicts(view: CheckedView, held: readonly ReplicaRecord[]): readonly string[] {
  const ports = held.flatMap(({ uid, version }) => {
    const template = view.version(uid, version)?.template;
    const replicaPorts = template === undefined ? [] : listHostPorts(template);
    return [...new Set(replicaPorts.map(({ protocol, number }) => `${number}/${protocol}`))];
  });
  return [...new Set(ports.filter((port, index) => ports.indexOf(port) !== index))];
}

/** Returns the resources of which the replicas of a node hold more than the node has. */
function findExcess(
  view: CheckedView,
  nodeId: string,
  capacity: NodeCapacity | undefined,
): readonly string[] {
  const held = sumAllocated(view, nodeId);
  const amounts: readonly (readonly [string, number, number | bigint | undefined])[] = [
    ['m CPU', held.cpuMillis, capacity?.cpuMillis],
    ['bytes of storage', held.storageBytes, capacity?.storageBytes],
    ['bit/s', held.bandwidthBps, capacity?.bandwidthBps],
    ...Object.entries(held.custom).map(
      ([name, amount]) => [name, amount, capacity?.custom[name]] as const,
    ),
  ];
  return amounts.flatMap(([unit, amount, most = 0]) =>
    amount > Number(most) ? [`${nodeId} holds ${amount} of ${most} ${unit}`] : [],
  );
}
