import { resolveNamespace } from '@cloudless/api';
import type { ReplicaRecord } from '@cloudless/api/store';
import { CloudlessError, InvalidInputError } from '@cloudless/base';
import { isLive, type ClusterView } from '@cloudless/cluster-state';
import { getReplicaNamespace, type TargetPermission } from '../access/call-access.js';
import { requireWorkload } from '../lookup.js';

/** The fields by which a log or exec request names its target. */
export interface StreamTargetRequest {
  readonly containerId: string;
  readonly replicaId: string;
  readonly namespace: string;
  readonly name: string;
}

/** The resolved target of a log or exec request: one container, one replica, or a workload. */
export type StreamTarget =
  | { readonly kind: 'container'; readonly containerId: string; readonly replica: ReplicaRecord }
  | { readonly kind: 'replica'; readonly replica: ReplicaRecord }
  | {
      readonly kind: 'workload';
      readonly uid: string;
      readonly namespace: string;
      readonly name: string;
    };

/** A replica or a container whose log is read. */
export type LogTarget = Exclude<StreamTarget, { kind: 'workload' }>;

/**
 * Finds the target of a request.
 * @throws kind `invalid` when the request names no target, two targets, or an ambiguous prefix;
 *   `notFound` when the target does not exist, also for a replica or container that the caller may
 *   not name; `denied` for a workload that the caller may not name.
 */
export function resolveTarget(
  view: ClusterView,
  request: StreamTargetRequest,
  permission: TargetPermission,
): StreamTarget {
  const givenFields = [
    ...(request.containerId === '' ? [] : ['container_id']),
    ...(request.replicaId === '' ? [] : ['replica_id']),
    ...(request.name === '' ? [] : ['name']),
  ];
  if (givenFields.length === 0) {
    throw new InvalidInputError([
      {
        field: 'container_id',
        message: 'container_id, replica_id, or the name of a workload is required',
      },
    ]);
  }
  if (givenFields.length > 1)
    throw new InvalidInputError([
      {
        field: givenFields[1] ?? '',
        message: `cannot be combined with ${givenFields[0] ?? ''}`,
      },
    ]);
  if (request.containerId !== '') return findContainer(view, request.containerId, permission);
  if (request.replicaId !== '') {
    const replica = view.replica(request.replicaId)?.value;
    if (replica === undefined || !permission.isPermitted(getReplicaNamespace(view, replica)))
      throw new CloudlessError('REPLICA_NOT_FOUND', `replica "${request.replicaId}" not found`);
    permission.requireNamespace(getReplicaNamespace(view, replica));
    return { kind: 'replica', replica };
  }
  permission.requireNamespace(resolveNamespace(request));
  const { uid, name } = requireWorkload(view, request).value;
  return { kind: 'workload', uid, namespace: resolveNamespace(request), name };
}

/**
 * Finds a container by its id or a unique prefix of it, including earlier containers of a replica,
 * whose logs the node may still have.
 * Containers that the caller may not name do not count.
 * @throws kind `notFound` when no id begins with `prefix`, `invalid` when several do.
 */
export function findContainer(
  view: ClusterView,
  prefix: string,
  permission: TargetPermission,
): Extract<StreamTarget, { kind: 'container' }> {
  const matches: Extract<StreamTarget, { kind: 'container' }>[] = [];
  for (const { value } of view.replicas()) {
    for (const containerId of [value.containerId, ...value.earlierContainerIds]) {
      if (
        containerId !== '' &&
        containerId.startsWith(prefix) &&
        permission.isPermitted(getReplicaNamespace(view, value))
      )
        matches.push({ kind: 'container', containerId, replica: value });
    }
  }
  const [first, second] = matches;
  if (first === undefined)
    throw new CloudlessError('CONTAINER_NOT_FOUND', `container "${prefix}" not found`);
  if (second !== undefined) {
    throw new InvalidInputError([
      {
        field: 'container_id',
        message: `"${prefix}" begins the id of ${matches.length} containers; give more digits`,
      },
    ]);
  }
  permission.requireNamespace(getReplicaNamespace(view, first.replica));
  return first;
}

/**
 * Returns the earlier container of a replica, or of each replica of a workload that has one: the
 * kept container that was replaced last.
 * @throws kind `notFound` when there is none.
 */
export function listPreviousContainers(
  view: ClusterView,
  target: Exclude<StreamTarget, { kind: 'container' }>,
): readonly Extract<StreamTarget, { kind: 'container' }>[] {
  const replicas =
    target.kind === 'replica'
      ? [target.replica]
      : [...view.replicasOf(target.uid)].map(({ value }) => value);
  const containers = replicas
    .filter(({ nodeId, lost }) => nodeId !== '' && !lost)
    .flatMap((replica) => {
      const { containerId: current, earlierContainerIds } = replica;
      const containerId = earlierContainerIds.findLast((id) => id !== current);
      return containerId === undefined
        ? []
        : [{ kind: 'container', containerId, replica } as const];
    });
  if (containers.length > 0) return containers;
  throw new CloudlessError(
    'notFound',
    target.kind === 'replica'
      ? `replica "${target.replica.id}" has no earlier container: it was not restarted in place, or the log is no longer kept`
      : `no replica of workload "${target.namespace}/${target.name}" has an earlier container: none was restarted in place, or the logs are no longer kept`,
  );
}

/**
 * Returns the id of the container of a target: the named container, or the current one of
 * `replica`.
 * @throws kind `precondition` when the replica has no container yet.
 */
export function requireContainer(target: StreamTarget, replica: ReplicaRecord): string {
  const containerId = target.kind === 'container' ? target.containerId : replica.containerId;
  if (containerId === '')
    throw new CloudlessError(
      'REPLICA_NOT_RUNNING',
      `replica "${replica.id}" has no running container`,
    );
  return containerId;
}

/**
 * Returns the replicas of a workload that are ready and not leaving, lowest slot first.
 * @throws kind `precondition` when there is none.
 */
export function listReadyReplicas(
  view: ClusterView,
  target: Extract<StreamTarget, { kind: 'workload' }>,
): readonly ReplicaRecord[] {
  const ready = [...view.replicasOf(target.uid)]
    .map(({ value }) => value)
    .filter(
      (replica) =>
        replica.ready &&
        replica.desiredRunning &&
        !replica.lost &&
        isLive(replica) &&
        replica.containerId !== '',
    )
    .sort((a, b) => a.slot - b.slot);
  if (ready.length > 0) return ready;
  throw new CloudlessError(
    'REPLICA_NOT_RUNNING',
    `no replica of workload "${target.namespace}/${target.name}" is ready`,
  );
}

/**
 * Returns the replica of a workload in which a command runs. Of the replicas that have a container
 * and are not leaving: a ready one before an unready one, then the one with the lowest slot.
 * @throws kind `precondition` when there is none.
 */
export function requireRunningReplica(
  view: ClusterView,
  target: Extract<StreamTarget, { kind: 'workload' }>,
): ReplicaRecord {
  const running = [...view.replicasOf(target.uid)]
    .map(({ value }) => value)
    .filter((replica) => replica.desiredRunning && isLive(replica) && replica.containerId !== '')
    .sort((a, b) => Number(b.ready) - Number(a.ready) || a.slot - b.slot)[0];
  if (running !== undefined) return running;
  throw new CloudlessError(
    'REPLICA_NOT_RUNNING',
    `no replica of workload "${target.namespace}/${target.name}" is running`,
  );
}
