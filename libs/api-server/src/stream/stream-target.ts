import { resolveNamespace } from '@cloudless/api';
import type { ReplicaRecord } from '@cloudless/api/store';
import { CloudlessError, InvalidInputError } from '@cloudless/base';
import { isLive, type ClusterView } from '@cloudless/cluster-state';
import { requireWorkload } from '../workload/lookup.js';

/** The fields by which a log or exec request names its target. */
export interface StreamTargetRequest {
  readonly containerId: string;
  readonly replicaId: string;
  readonly namespace: string;
  readonly name: string;
}

/** The target of a request: one container, one replica, or a workload. */
export type StreamTarget =
  | { readonly kind: 'container'; readonly containerId: string; readonly replica: ReplicaRecord }
  | { readonly kind: 'replica'; readonly replica: ReplicaRecord }
  | {
      readonly kind: 'workload';
      readonly uid: string;
      readonly namespace: string;
      readonly name: string;
    };

/**
 * Finds the target of a request.
 * @throws kind `invalid` when the request names no target, two targets, or an ambiguous prefix;
 *   `notFound` when the target does not exist.
 */
export function resolveTarget(view: ClusterView, request: StreamTargetRequest): StreamTarget {
  const named = [
    ...(request.containerId === '' ? [] : ['container_id']),
    ...(request.replicaId === '' ? [] : ['replica_id']),
    ...(request.name === '' ? [] : ['name']),
  ];
  if (named.length === 0) {
    throw new InvalidInputError([
      {
        field: 'container_id',
        message: 'container_id, replica_id, or the name of a workload is required',
      },
    ]);
  }
  if (named.length > 1)
    throw new InvalidInputError([
      { field: named[1] ?? '', message: `cannot be combined with ${named[0] ?? ''}` },
    ]);
  if (request.containerId !== '') return findContainer(view, request.containerId);
  if (request.replicaId !== '') {
    const replica = view.replica(request.replicaId)?.value;
    if (replica === undefined)
      throw new CloudlessError('notFound', `replica "${request.replicaId}" not found`);
    return { kind: 'replica', replica };
  }
  const { uid, name } = requireWorkload(view, request).value;
  return { kind: 'workload', uid, namespace: resolveNamespace(request), name };
}

/**
 * Finds a container by its id or a unique prefix, including ended containers whose logs are kept.
 */
export function findContainer(
  view: ClusterView,
  prefix: string,
): Extract<StreamTarget, { kind: 'container' }> {
  const matches: Extract<StreamTarget, { kind: 'container' }>[] = [];
  for (const { value } of view.replicas()) {
    for (const containerId of [value.containerId, ...value.earlierContainerIds]) {
      if (containerId !== '' && containerId.startsWith(prefix))
        matches.push({ kind: 'container', containerId, replica: value });
    }
  }
  const [first, second] = matches;
  if (first === undefined) throw new CloudlessError('notFound', `container "${prefix}" not found`);
  if (second !== undefined) {
    throw new InvalidInputError([
      {
        field: 'container_id',
        message: `"${prefix}" begins the id of ${matches.length} containers; give more digits`,
      },
    ]);
  }
  return first;
}

/**
 * Returns the id of the running container of a target. @throws kind `precondition` when none runs.
 */
export function requireContainer(target: StreamTarget, replica: ReplicaRecord): string {
  const containerId = target.kind === 'container' ? target.containerId : replica.containerId;
  if (containerId === '')
    throw new CloudlessError('precondition', `replica "${replica.id}" has no running container`);
  return containerId;
}

/**
 * Returns the replicas of a workload that receive traffic, lowest slot first.
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
    'precondition',
    `no replica of workload "${target.namespace}/${target.name}" is ready`,
  );
}

/**
 * Returns the replica of a workload to run a command in: running, not leaving, ready before not
 * ready, then lowest slot.
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
    'precondition',
    `no replica of workload "${target.namespace}/${target.name}" is running`,
  );
}
