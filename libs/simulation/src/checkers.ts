import { withDefaults } from '@cloudless/api';
import type { ReplicaRecord, WorkloadRecord } from '@cloudless/api/store';
import { holdsResources, isLive, type ClusterView, type RecordChange } from '@cloudless/cluster-state';
import { resolveLimits, type RolloutLimits } from '@cloudless/rollout';
import type { TestCluster } from './test-cluster.js';

/** What a checker looks at: one commit, after the view shows it. */
export interface Commit {
  readonly view: ClusterView;
  readonly changes: readonly RecordChange[];
  readonly isAlive: (nodeId: string) => boolean;
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
    ];
  });

/** 6: nothing is created beyond the ceiling of its workload. 13: what is created has the newest version. */
export const creationsKeepTheCeiling: Checker = ({ view, changes }) => {
  const created = replicaChanges(changes).flatMap(({ before, after }) =>
    before === undefined && after !== undefined ? [after] : [],
  );
  return [...new Set(created.map(({ uid }) => uid))].flatMap((uid) => {
    const workload = view.workload(uid)?.value;
    if (workload === undefined) return [`${uid} got a replica and does not exist`];
    const { want, maxSurge } = limitsOf(workload);
    const live = [...view.replicasOf(uid)].map(({ value }) => value).filter((replica) => isLive(replica) && !replica.lost);
    const draining = live.filter(({ nodeId }) => view.node(nodeId)?.value.draining === true).length;
    const old = created.filter((replica) => replica.uid === uid && replica.version !== workload.version);
    return [
      ...(live.length > want + maxSurge + draining
        ? [`${workload.name} has ${live.length} live replicas, ${want} are wanted`]
        : []),
      ...old.map(({ id, version }) => `${id} was made of version ${version}, which is not the newest`),
    ];
  });
};

/** 9: no voluntary stop of a ready replica leaves fewer ready ones than the floor. */
export const stopsKeepTheFloor: Checker = ({ view, changes, isAlive }) => {
  const serves = (replica: ReplicaRecord): boolean => replica.ready && isLive(replica) && isAlive(replica.nodeId);
  const stopped = replicaChanges(changes).flatMap(({ before, after }) => {
    const byChoice =
      before?.desiredRunning === true && after !== undefined && !after.desiredRunning && !after.lost && isLive(after);
    return byChoice && serves(before) ? [after] : [];
  });
  return [...new Set(stopped.map(({ uid }) => uid))].flatMap((uid) => {
    const workload = view.workload(uid)?.value;
    if (workload === undefined) return [];
    const ready = [...view.replicasOf(uid)].filter(({ value }) => value.desiredRunning && serves(value)).length;
    const { minAvailable } = limitsOf(workload);
    return ready < minAvailable ? [`${workload.name} was taken to ${ready} ready by choice, ${minAvailable} must stay`] : [];
  });
};

/** 8: nothing is placed beyond the capacity of a node. */
export const placementsFit: Checker = ({ view, changes }) => {
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
      ...(node.cordoned ? [`a replica was placed on ${nodeId}, which is cordoned`] : []),
    ];
  });
};

/** 17: only replicas of nodes that are not alive are given up. */
export const onlyTheLostAreGivenUp: Checker = ({ changes, isAlive }) =>
  replicaChanges(changes).flatMap(({ before, after }) =>
    before?.lost === false && after?.lost === true && isAlive(after.nodeId) ? [`${after.id} was given up on a living node`] : [],
  );

/** All that look at commits. */
export const COMMIT_CHECKERS: readonly Checker[] = [
  replicasNeverMove,
  creationsKeepTheCeiling,
  stopsKeepTheFloor,
  placementsFit,
  onlyTheLostAreGivenUp,
];

/** CLD-REQ-012: what the scheduler has booked is what the records say. */
export function wrongBookings({ controllers, state }: TestCluster): readonly string[] {
  return [...state.view().nodes()].flatMap(({ value: { id } }) => {
    const [booked, held] = [JSON.stringify(controllers.bookedOn(id)), JSON.stringify(controllers.placements.allocatedOn(id))];
    return booked === held ? [] : [`${id}: the scheduler has booked ${booked}, the records say ${held}`];
  });
}

/** 8, 12: what is not as it should be once all faults have ended. */
export function unconverged(cluster: TestCluster): readonly string[] {
  const view = cluster.state.view();
  const workloads = [...view.workloads()].flatMap(({ value: workload }) => {
    const { name, uid, version } = workload;
    if (workload.deletionRequestedAt !== undefined) return [`${name} is not deleted yet`];
    const live = [...view.replicasOf(uid)].map(({ value }) => value).filter((replica) => isLive(replica) && !replica.lost);
    const good = live.filter((replica) => replica.ready && replica.desiredRunning && replica.version === version);
    const { want } = limitsOf(workload);
    return good.length === want && live.length === want
      ? []
      : [`${name}: ${good.length} of ${want} are right, ${live.length} live`];
  });
  const agents = [...cluster.agents.values()].flatMap(({ nodeId, replicas }) => {
    const held = new Set([...view.replicasOn(nodeId)].map(({ value }) => value.id));
    const extra = [...replicas.keys()].filter((id) => !held.has(id));
    return extra.map((id) => `${nodeId} still has ${id}, of which no record speaks`);
  });
  const tombstones = [...view.replicas()].flatMap(({ value }) => (value.lost ? [`${value.id} is still a tombstone`] : []));
  return [...workloads, ...agents, ...tombstones];
}

function replicaChanges(changes: readonly RecordChange[]): readonly ReplicaChange[] {
  return changes
    .filter(({ kind }) => kind === 'replica')
    .map(({ before, after }) => ({ before: before as ReplicaRecord | undefined, after: after as ReplicaRecord | undefined }));
}

function limitsOf({ spec, deletionRequestedAt }: WorkloadRecord): RolloutLimits {
  const { replicas, rollout } = spec === undefined ? {} : withDefaults(spec);
  return resolveLimits({
    desired: deletionRequestedAt === undefined ? (replicas ?? 0) : 0,
    ...(rollout?.maxSurge === undefined ? {} : { maxSurge: rollout.maxSurge }),
    ...(rollout?.maxUnavailable === undefined ? {} : { maxUnavailable: rollout.maxUnavailable }),
    ...(rollout?.minAvailable === undefined ? {} : { minAvailable: rollout.minAvailable }),
  });
}

function cpuOf(view: ClusterView, uid: string, version: number): number {
  return view.version(uid, version)?.template?.resources?.requests?.cpuMillis ?? 0;
}
