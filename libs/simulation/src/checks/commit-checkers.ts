import { equals } from '@bufbuild/protobuf';
import { ReplicaStatus_Phase as Phase, RestartPolicy_Policy as Restart, WorkloadSpecSchema, withDefaults } from '@cloudless/api';
import type { NodeRecord, ReplicaRecord, WorkloadRecord } from '@cloudless/api/store';
import { holdsResources, isLive, type RecordChange } from '@cloudless/cluster-state';
import { resolveLimits, type RolloutLimits } from '@cloudless/rollout';
import type { CheckedView } from '../parts/records.js';
import type { Evidence } from '../parts/sim-coordinator.js';

/** What a checker looks at: one commit, after the records show it. */
export interface Commit {
  readonly view: CheckedView;
  readonly changes: readonly RecordChange[];
  /** What the coordinator knew of the nodes when it decided. */
  readonly evidence: Evidence;
}

/** Looks at one commit and says what it breaks. Numbers of invariants are those of the reliability document. */
export type Checker = (commit: Commit) => readonly string[];

/** A replica before and after a commit. */
interface ReplicaChange {
  readonly before: ReplicaRecord | undefined;
  readonly after: ReplicaRecord | undefined;
}

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
      ...(after.orderRevision < before.orderRevision ? [`${after.id} has an older order than before`] : []),
      ...(after.desiredRunning && !before.desiredRunning ? [`${after.id} is wanted again after it was not`] : []),
      ...(before.lost && !after.lost ? [`${after.id} was given up and is not any more`] : []),
    ];
  });

/** 6: nothing is created beyond the ceiling of its workload. 13: what is created has the newest version. */
export const creationsKeepTheCeiling: Checker = ({ view, changes, evidence }) => {
  const created = replicaChanges(changes).flatMap(({ before, after }) =>
    before === undefined && after !== undefined ? [after] : [],
  );
  return [...new Set(created.map(({ uid }) => uid))].flatMap((uid) => {
    const workload = view.workload(uid)?.value;
    if (workload === undefined) return [`${uid} got a replica and does not exist`];
    const { live, ceiling } = ceilingOf(view, workload, evidence);
    const old = created.filter((replica) => replica.uid === uid && replica.version !== workload.version);
    return [
      ...(live > ceiling ? [`${workload.name} has ${live} live replicas, ${ceiling} are the most it may have`] : []),
      ...old.map(({ id, version }) => `${id} was made of version ${version}, which is not the newest`),
    ];
  });
};

/** 9: no voluntary stop of a ready replica leaves fewer ready ones than the floor. */
export const stopsKeepTheFloor: Checker = ({ view, changes, evidence }) => {
  const serves = (replica: ReplicaRecord): boolean => replica.ready && isLive(replica) && evidence.alive.has(replica.nodeId);
  const stopped = replicaChanges(changes).flatMap(({ before, after }) => {
    const byChoice =
      before?.desiredRunning === true && after !== undefined && !after.desiredRunning && !after.lost && isLive(after);
    return byChoice && serves(before) ? [after] : [];
  });
  return [...new Set(stopped.map(({ uid }) => uid))].flatMap((uid) => {
    const workload = view.workload(uid)?.value;
    if (workload === undefined) return [];
    const ready = [...view.replicasOf(uid)].filter(({ value }) => value.desiredRunning && serves(value)).length;
    const { minAvailable } = limitsOf(view, workload);
    return ready < minAvailable ? [`${workload.name} was taken to ${ready} ready by choice, ${minAvailable} must stay`] : [];
  });
};

/** 8: nothing is placed beyond the capacity of a node, or on one that takes nothing. */
export const placementsFit: Checker = ({ view, changes, evidence }) => {
  const placedOn = replicaChanges(changes).flatMap(({ before, after }) =>
    after !== undefined && after.nodeId !== '' && before?.nodeId !== after.nodeId ? [after.nodeId] : [],
  );
  return [...new Set(placedOn)].flatMap((nodeId) => {
    const node = view.node(nodeId)?.value;
    if (node === undefined) return [`a replica was placed on ${nodeId}, which does not exist`];
    const held = [...view.replicasOn(nodeId)].map(({ value }) => value).filter(holdsResources);
    const cpu = held.reduce((sum, { uid, version }) => sum + cpuOf(view, uid, version), 0);
    const capacity = node.hello?.capacity?.cpuMillis ?? 0;
    return [
      ...(cpu > capacity ? [`${nodeId} holds ${cpu} m of ${capacity} m CPU`] : []),
      ...(evidence.cordoned.has(nodeId) ? [`a replica was placed on ${nodeId}, which is cordoned`] : []),
      ...(evidence.alive.has(nodeId) ? [] : [`a replica was placed on ${nodeId}, which is not connected`]),
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

/** 13, and what a user wrote: generations and versions only grow, and nobody but a user ends a workload. */
export const specsOnlyGoForward: Checker = ({ changes }) =>
  changes.flatMap(({ kind, before, after }) => {
    if (kind !== 'workload' || before === undefined) return [];
    const [was, is] = [before as WorkloadRecord, after as WorkloadRecord | undefined];
    if (is === undefined) return was.deletionRequestedAt === undefined ? [`${was.name} is gone and nobody deleted it`] : [];
    const isSame = was.spec !== undefined && is.spec !== undefined && equals(WorkloadSpecSchema, was.spec, is.spec);
    return [
      ...(is.version < was.version ? [`${is.name} went back from version ${was.version} to ${is.version}`] : []),
      ...(is.generation < was.generation ? [`${is.name} went back from generation ${was.generation} to ${is.generation}`] : []),
      ...(!isSame && is.generation === was.generation ? [`${is.name} changed within generation ${is.generation}`] : []),
      ...(was.deletionRequestedAt !== undefined && is.deletionRequestedAt === undefined ? [`${is.name} is wanted again`] : []),
    ];
  });

/** 3: the outcome of a request id is written once. */
export const requestsApplyOnce: Checker = ({ changes }) =>
  changes.flatMap(({ kind, id, before, after }) =>
    kind === 'request' && before !== undefined && after !== undefined ? [`request ${id} was applied twice`] : [],
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

/** CLD-REQ-023: how many live replicas a workload has, and may have at the most. Those on lost nodes do not count. */
export function ceilingOf(
  view: Pick<CheckedView, 'replicasOf'>,
  workload: WorkloadRecord,
  { draining }: Pick<Evidence, 'draining'>,
): { readonly live: number; readonly ceiling: number } {
  const { want, maxSurge } = limitsOf(view, workload);
  const live = [...view.replicasOf(workload.uid)].map(({ value }) => value).filter((replica) => isLive(replica) && !replica.lost);
  const leaving = live.filter(({ nodeId }) => draining.has(nodeId)).length;
  return { live: live.length, ceiling: want + maxSurge + leaving };
}

/** The limits of a workload: by its spec without the replicas that have run to their end; none is wanted while it is being deleted. */
export function limitsOf(view: Pick<CheckedView, 'replicasOf'>, workload: WorkloadRecord): RolloutLimits {
  const { spec, deletionRequestedAt, uid } = workload;
  const { replicas, rollout } = spec === undefined ? {} : withDefaults(spec);
  const ended = [...view.replicasOf(uid)].filter(({ value }) => isFinal(workload, value)).length;
  return resolveLimits({
    desired: deletionRequestedAt === undefined ? Math.max(0, (replicas ?? 0) - ended) : 0,
    ...(rollout?.maxSurge === undefined ? {} : { maxSurge: rollout.maxSurge }),
    ...(rollout?.maxUnavailable === undefined ? {} : { maxUnavailable: rollout.maxUnavailable }),
    ...(rollout?.minAvailable === undefined ? {} : { minAvailable: rollout.minAvailable }),
  });
}

/** It has run to its end, and is not to be replaced: it counts as one of those that are wanted. */
function isFinal(workload: WorkloadRecord, { version, lost, desiredRunning, phase }: ReplicaRecord): boolean {
  if (version !== workload.version || lost || !desiredRunning) return false;
  return phase === Phase.SUCCEEDED || (phase === Phase.FAILED && workload.spec?.restart?.policy === Restart.NEVER);
}

/** The replicas that a commit changed. */
export function replicaChanges(changes: readonly RecordChange[]): readonly ReplicaChange[] {
  return changes
    .filter(({ kind }) => kind === 'replica')
    .map(({ before, after }) => ({ before: before as ReplicaRecord | undefined, after: after as ReplicaRecord | undefined }));
}

/** The nodes that a commit changed. */
export function nodeChanges(changes: readonly RecordChange[]): readonly (NodeRecord | undefined)[] {
  return changes.filter(({ kind }) => kind === 'node').map(({ after }) => after as NodeRecord | undefined);
}

function cpuOf(view: CheckedView, uid: string, version: number): number {
  return view.version(uid, version)?.template?.resources?.requests?.cpuMillis ?? 0;
}
