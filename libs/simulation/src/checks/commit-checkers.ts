import { equals } from '@bufbuild/protobuf';
import { timestampMs } from '@bufbuild/protobuf/wkt';
import { hostPortsOf, Rollout_Strategy as Strategy, WorkloadSpecSchema } from '@cloudless/api';
import type { ReplicaRecord, WorkloadRecord } from '@cloudless/api/store';
import { holdsResources, isLive, type RecordChange } from '@cloudless/cluster-state';
import type { CheckedView } from '../parts/records.js';
import type { Evidence } from '../parts/evidence.js';
import { createdBy, replicaChanges } from './commit-changes.js';
import {
  ceilingOf,
  factsOf,
  formerEnded,
  msOf,
  settingsOf,
  type RolloutFacts,
} from './rollout-facts.js';

/** What a checker looks at: one commit, after the records show it. */
export interface Commit {
  readonly view: CheckedView;
  readonly changes: readonly RecordChange[];
  /** What the coordinator knew of the nodes when it decided. */
  readonly evidence: Evidence;
}

/**
 * Looks at one commit and says what it breaks. Numbers of invariants are those of the reliability
 * document.
 */
export type Checker = (commit: Commit) => readonly string[];

/** 7, and the meaning of a replica: it never moves, its phase and its orders only go forward. */
export const replicasNeverMove: Checker = ({ changes }) =>
  replicaChanges(changes).flatMap(({ before, after }) => {
    if (before === undefined || after === undefined) return [];
    return [
      ...(before.nodeId !== '' && before.nodeId !== after.nodeId
        ? [`${after.id} moved from ${before.nodeId} to ${after.nodeId}`]
        : []),
      ...(after.phase < before.phase && !after.lost
        ? [`${after.id} went back from phase ${before.phase} to ${after.phase}`]
        : []),
      ...(after.orderRevision < before.orderRevision
        ? [`${after.id} has an older order than before`]
        : []),
      ...(after.desiredRunning && !before.desiredRunning
        ? [`${after.id} is wanted again after it was not`]
        : []),
      ...(before.lost && !after.lost ? [`${after.id} was given up and is not any more`] : []),
    ];
  });

/**
 * 6: nothing is created beyond the ceiling of its workload, and under RECREATE nothing beside
 * another version.
 */
export const creationsKeepTheCeiling: Checker = ({ view, changes, evidence }) => {
  const created = createdBy(changes);
  return [...new Set(created.map(({ uid }) => uid))].flatMap((uid) => {
    const workload = view.workload(uid)?.value;
    if (workload === undefined) return [`${uid} got a replica and does not exist`];
    const facts = factsOf(view, workload);
    const { live, strategy, canonical } = facts;
    const ceiling = ceilingOf(facts, evidence);
    const own = created
      .filter((replica) => replica.uid === uid)
      .map(({ version }) => canonical(version));
    const beside = live.filter(({ version }) => !own.includes(canonical(version)));
    return [
      ...(live.length > ceiling
        ? [`${workload.name} has ${live.length} live replicas, ${ceiling} are the most it may have`]
        : []),
      ...(strategy === Strategy.RECREATE && !facts.isHalted && beside.length > 0
        ? [
            `${workload.name} got replicas beside ${beside.length} of another version, and its strategy is RECREATE`,
          ]
        : []),
    ];
  });
};

/**
 * 9: no voluntary stop leaves fewer freshly ready replicas than the floor. 10: nor fewer than what
 * lets the update go on: all that are wanted but one batch. Under BLUE_GREEN only the version that
 * serves counts, RECREATE stops other versions as it likes, and a drain that is forced knows no
 * floor.
 */
export const stopsKeepTheFloor: Checker = (commit) => {
  const { view, changes, evidence } = commit;
  const serves = (replica: ReplicaRecord): boolean =>
    replica.ready && isLive(replica) && evidence.alive.has(replica.nodeId);
  const stopped = replicaChanges(changes).flatMap(({ before, after }) => {
    const byChoice =
      before?.desiredRunning === true &&
      after !== undefined &&
      !after.desiredRunning &&
      !after.lost &&
      isLive(after);
    return byChoice && serves(before) ? [before] : [];
  });
  return [...new Set(stopped.map(({ uid }) => uid))].flatMap((uid) => {
    const workload = view.workload(uid)?.value;
    if (workload === undefined) return [];
    const facts = factsOf(view, workload);
    const isFresh = freshness(facts, commit);
    const counts = (replica: ReplicaRecord): boolean =>
      countsForTheFloor(facts, replica) && !isForced(view, replica, evidence);
    const gone = stopped.filter(
      (replica) => replica.uid === uid && counts(replica) && !goesFreely(facts, replica),
    );
    if (gone.length === 0) return [];
    const isReady = (replica: ReplicaRecord): boolean =>
      replica.desiredRunning && counts(replica) && serves(replica) && isFresh(replica);
    const ready = facts.live.filter(isReady).length + formerEnded(view, facts);
    const { minAvailable, want, batch } = facts.limits;
    const due = gone.some(isFresh) ? Math.max(minAvailable, want - batch) : minAvailable;
    if (ready >= due) return [];
    return ready < minAvailable
      ? [`${workload.name} was taken to ${ready} ready by choice, ${minAvailable} must stay`]
      : [
          `10: ${workload.name} was taken to ${ready} ready by choice before ${want - batch} of ${want} were ready again`,
        ];
  });
};

/** Under BLUE_GREEN only the version that serves counts. */
function countsForTheFloor(
  { strategy, active, canonical }: RolloutFacts,
  { version }: ReplicaRecord,
): boolean {
  return strategy !== Strategy.BLUE_GREEN || canonical(version) === active;
}

/** RECREATE's own stops. */
function goesFreely(
  { strategy, wanted, canonical, isUnderWay }: RolloutFacts,
  { version }: ReplicaRecord,
): boolean {
  return strategy === Strategy.RECREATE && isUnderWay && canonical(version) !== wanted;
}

/** The drain of its node has come to its end by force. */
function isForced(view: CheckedView, { nodeId }: ReplicaRecord, { wallMs }: Evidence): boolean {
  const { drain, draining = false } = view.node(nodeId)?.value ?? {};
  if (!draining || drain?.force !== true) return false;
  return (
    drain.deadline === undefined || (wallMs !== undefined && timestampMs(drain.deadline) <= wallMs)
  );
}

/** Whether it had been ready for min_ready_duration, as far as the coordinator knew. */
function freshness(
  { workload }: RolloutFacts,
  { evidence: { readyForMs } }: Commit,
): (replica: ReplicaRecord) => boolean {
  const minReadyMs = msOf(settingsOf(workload)?.minReadyDuration);
  return ({ id }) => readyForMs === undefined || (readyForMs.get(id) ?? -1) >= minReadyMs;
}

/**
 * 8: nothing is placed beyond the capacity of a node, on a host port that is held there, or on a
 * node that takes nothing.
 */
export const placementsFit: Checker = ({ view, changes, evidence }) => {
  const placedOn = replicaChanges(changes).flatMap(({ before, after }) =>
    after !== undefined && after.nodeId !== '' && before?.nodeId !== after.nodeId
      ? [after.nodeId]
      : [],
  );
  return [...new Set(placedOn)].flatMap((nodeId) => {
    const node = view.node(nodeId)?.value;
    if (node === undefined) return [`a replica was placed on ${nodeId}, which does not exist`];
    const held = [...view.replicasOn(nodeId)].map(({ value }) => value).filter(holdsResources);
    const cpu = held.reduce((sum, { uid, version }) => sum + cpuOf(view, uid, version), 0);
    const capacity = node.hello?.capacity?.cpuMillis ?? 0;
    return [
      ...(cpu > capacity ? [`${nodeId} holds ${cpu} m of ${capacity} m CPU`] : []),
      ...heldTwice(view, held).map((port) => `${nodeId} has given host port ${port} twice`),
      ...(evidence.cordoned.has(nodeId)
        ? [`a replica was placed on ${nodeId}, which is cordoned`]
        : []),
      ...(evidence.alive.has(nodeId)
        ? []
        : [`a replica was placed on ${nodeId}, which is not connected`]),
    ];
  });
};

/** 17: only replicas of nodes that are not alive are given up. */
export const onlyTheLostAreGivenUp: Checker = ({ changes, evidence }) =>
  replicaChanges(changes).flatMap(({ before, after }) =>
    before?.lost === false && after?.lost === true && evidence.alive.has(after.nodeId)
      ? [`${after.id} was given up on a living node`]
      : [],
  );

/**
 * 13, and what a user wrote: generations and versions only grow, and nobody but a user ends a
 * workload.
 */
export const specsOnlyGoForward: Checker = ({ changes }) =>
  changes.flatMap(({ kind, before, after }) => {
    if (kind !== 'workload' || before === undefined) return [];
    const [was, is] = [before as WorkloadRecord, after as WorkloadRecord | undefined];
    if (is === undefined)
      return was.deletionRequestedAt === undefined
        ? [`${was.name} is gone and nobody deleted it`]
        : [];
    const isSame =
      was.spec !== undefined &&
      is.spec !== undefined &&
      equals(WorkloadSpecSchema, was.spec, is.spec);
    return [
      ...(is.version < was.version
        ? [`${is.name} went back from version ${was.version} to ${is.version}`]
        : []),
      ...(is.generation < was.generation
        ? [`${is.name} went back from generation ${was.generation} to ${is.generation}`]
        : []),
      ...(!isSame && is.generation === was.generation
        ? [`${is.name} changed within generation ${is.generation}`]
        : []),
      ...(was.deletionRequestedAt !== undefined && is.deletionRequestedAt === undefined
        ? [`${is.name} is wanted again`]
        : []),
    ];
  });

/** 3: the outcome of a request id is written once. */
export const requestsApplyOnce: Checker = ({ changes }) =>
  changes.flatMap(({ kind, id, before, after }) =>
    kind === 'request' && before !== undefined && after !== undefined
      ? [`request ${id} was applied twice`]
      : [],
  );

/** All that look at commits. */
export const COMMIT_CHECKERS: readonly Checker[] = [
  replicasNeverMove,
  creationsKeepTheCeiling,
  stopsKeepTheFloor,
  placementsFit,
  onlyTheLostAreGivenUp,
  specsOnlyGoForward,
  requestsApplyOnce,
];

/** Host ports that more than one of these replicas, all of one node, hold. */
function heldTwice(view: CheckedView, held: readonly ReplicaRecord[]): readonly string[] {
  const ports = held.flatMap(({ uid, version }) => {
    const template = view.version(uid, version)?.template;
    const ofReplica = template === undefined ? [] : hostPortsOf(template);
    return [...new Set(ofReplica.map(({ protocol, number }) => `${number}/${protocol}`))];
  });
  return [...new Set(ports.filter((port, index) => ports.indexOf(port) !== index))];
}

function cpuOf(view: CheckedView, uid: string, version: number): number {
  return view.version(uid, version)?.template?.resources?.requests?.cpuMillis ?? 0;
}
