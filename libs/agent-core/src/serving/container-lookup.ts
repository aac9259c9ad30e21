import { CloudlessError, InvalidInputError } from '@cloudless/base';
import { resolveNamespace, type ExecCommandRequest } from '@cloudless/api';
import { listAvailable, type ContainerRuntime, type ContainerStatus } from '@cloudless/runtime';
import type { ContainerOwner } from '../container/container-labels.js';
import type { NodeReplicas } from '../replica/node-replicas.js';

/** Minimum length of a container id prefix in requests. */
export const MIN_PREFIX = 12;

/** Fields by which a request selects a container. */
export type ContainerSelector = Pick<
  ExecCommandRequest,
  'containerId' | 'replicaId' | 'namespace' | 'name'
>;

/** A container of this node and its owner. */
export interface OwnedContainer {
  readonly status: ContainerStatus;
  readonly owner: ContainerOwner;
}

export interface ContainerLookupOptions {
  readonly nodeId: string;
  readonly runtime: Pick<ContainerRuntime, 'list' | 'listAvailable'>;
  readonly replicas: NodeReplicas;
}

/** Finds the containers and replicas of this node that a request selects. */
export class ContainerLookup {
  constructor(private readonly options: ContainerLookupOptions) {}

  /**
   * Finds the container that a request selects: the container with a given id, which may have
   * exited, or the running container of a replica, or the running container of a workload that has
   * the lowest slot among the replicas that are not being stopped.
   * @param preferred - Returns true for replicas of a workload to prefer over a lower slot.
   * @throws kind `precondition` when the replica or workload has no running container, `notFound`,
   *   `invalid`.
   */
  async requireRunningContainer(
    request: ContainerSelector,
    preferred: (replicaId: string) => boolean = () => false,
  ): Promise<OwnedContainer> {
    const { nodeId } = this.options;
    if (request.containerId !== '') return this.requireContainer(request.containerId);
    const replicaIds =
      request.replicaId === ''
        ? await this.requireReplicaIds(request)
        : [this.requireReplicaId(request.replicaId)];
    const running = (await this.listOwned())
      .filter(
        ({ status, owner }) => status.phase === 'running' && replicaIds.includes(owner.replicaId),
      )
      .sort((a, b) => {
        const preference =
          Number(preferred(b.owner.replicaId)) - Number(preferred(a.owner.replicaId));
        const leaving =
          Number(this.isLeaving(a.owner.replicaId)) - Number(this.isLeaving(b.owner.replicaId));
        return preference || leaving || a.owner.slot - b.owner.slot;
      });
    const [first] = running;
    if (first !== undefined) return first;
    const target =
      request.replicaId === ''
        ? `workload ${resolveNamespace(request)}/${request.name}`
        : `replica ${request.replicaId}`;
    throw new CloudlessError(
      'REPLICA_NOT_RUNNING',
      `${target} has no running container on node ${nodeId}`,
    );
  }

  private isLeaving(replicaId: string): boolean {
    return this.options.replicas.find(replicaId)?.current.phase === 'stopping';
  }

  /**
   * Returns the id of a replica of this node.
   * @throws kind `notFound` when the replica is not on this node.
   */
  requireReplicaId(replicaId: string): string {
    const { replicas, nodeId } = this.options;
    if (replicas.find(replicaId) !== undefined) return replicaId;
    throw new CloudlessError(
      'REPLICA_NOT_FOUND',
      `replica "${replicaId}" is not on node ${nodeId}`,
    );
  }

  /**
   * Returns the ids of the replicas of a workload that are on this node, sorted.
   * @throws kind `invalid` when the request has no target, `notFound` when no replica of the
   *   workload is on this node.
   */
  async requireReplicaIds(request: {
    readonly namespace: string;
    readonly name: string;
  }): Promise<readonly string[]> {
    if (request.name === '') {
      throw new InvalidInputError([
        { field: 'container_id', message: 'is required, or replica_id, or the name of a workload' },
      ]);
    }
    const namespace = resolveNamespace(request);
    const { replicas, nodeId } = this.options;
    const ids = new Set<string>();
    for (const runner of replicas.listRunners()) {
      const start = runner.startOrder?.order;
      if (
        start?.case !== 'start' ||
        start.value.workload !== request.name ||
        resolveNamespace(start.value) !== namespace
      )
        continue;
      ids.add(runner.current.replicaId);
    }
    for (const { owner } of await this.listOwned()) {
      if (
        owner.workload === request.name &&
        resolveNamespace(owner) === namespace &&
        replicas.find(owner.replicaId) !== undefined
      )
        ids.add(owner.replicaId);
    }
    if (ids.size > 0) return [...ids].sort();
    throw new CloudlessError(
      'WORKLOAD_NOT_FOUND',
      `workload ${namespace}/${request.name} has no replica on node ${nodeId}`,
    );
  }

  /**
   * Finds a container by its id or a unique prefix of the id.
   * @throws kind `notFound`; `invalid` for a short or ambiguous prefix.
   */
  async requireContainer(idOrPrefix: string): Promise<OwnedContainer> {
    const { nodeId } = this.options;
    if (idOrPrefix.length < MIN_PREFIX) {
      throw new InvalidInputError([
        {
          field: 'container_id',
          message: `must be 64 hex digits, or a unique prefix of ${MIN_PREFIX} or more`,
        },
      ]);
    }
    const found = (await this.listOwned()).filter(({ status }) =>
      status.containerId.startsWith(idOrPrefix),
    );
    const [first] = found;
    const short =
      idOrPrefix.length > MIN_PREFIX ? `${idOrPrefix.slice(0, MIN_PREFIX)}…` : idOrPrefix;
    if (first === undefined)
      throw new CloudlessError(
        'CONTAINER_NOT_FOUND',
        `container "${short}" is not on node ${nodeId}`,
      );
    if (found.length === 1) return first;
    throw new InvalidInputError([
      {
        field: 'container_id',
        message: `"${short}" matches ${found.length} containers; give more digits`,
      },
    ]);
  }

  /** Lists all containers of this node that the runtime can list. */
  async listOwned(): Promise<readonly OwnedContainer[]> {
    const { runtime, replicas } = this.options;
    return (await listAvailable(runtime)).containers.flatMap((status) => {
      const owner = replicas.findOwner(status);
      return owner === undefined ? [] : [{ status, owner }];
    });
  }
}
