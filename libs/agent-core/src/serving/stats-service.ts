import { create } from '@bufbuild/protobuf';
import { CloudlessError, InvalidInputError, type Clock } from '@cloudless/base';
import {
  ListContainerStatsResponseSchema,
  resolveNamespace,
  type ContainerStats,
  type GetContainerStatsRequest,
  type ListContainerStatsRequest,
  type ListContainerStatsResponse,
} from '@cloudless/api';
import type { NodeReplicas } from '../replica/node-replicas.js';
import type { StatsSampler } from '../stats/stats-sampler.js';
import { toContainerStats, toContainerUse } from '../stats/to-container-stats.js';
import { MIN_PREFIX, type ContainerLookup } from './container-lookup.js';

export interface StatsServiceOptions {
  readonly nodeId: string;
  readonly replicas: NodeReplicas;
  readonly clock: Clock;
  /** Absent: statistics are rejected. */
  readonly stats?: StatsSampler;
}

/** Serves statistics of this node's containers. */
export class StatsService {
  constructor(
    private readonly options: StatsServiceOptions,
    private readonly lookup: ContainerLookup,
  ) {}

  /**
   * Samples one running container now.
   * @throws kind `notFound`, `invalid`; `precondition` when the container is not running;
   *   `unimplemented` when the node has no statistics.
   */
  async getContainerStats(request: GetContainerStatsRequest): Promise<ContainerStats> {
    const { nodeId, clock } = this.options;
    const stats = this.requireStats('a container');
    if ((request.containerId === '') === (request.replicaId === '')) {
      throw new InvalidInputError([
        { field: 'container_id', message: 'name either a container_id or a replica_id' },
      ]);
    }
    const { status, owner } = await this.lookup.requireRunningContainer({
      ...request,
      namespace: '',
      name: '',
    });
    const sample = status.phase === 'running' ? await stats.sampleNow(status) : undefined;
    if (sample !== undefined)
      return toContainerStats({ containerId: status.containerId, owner, nodeId }, sample, clock);
    const short = status.containerId.slice(0, MIN_PREFIX);
    const reason =
      status.phase === 'running'
        ? 'its process is not visible to the agent'
        : (status.reason ?? 'it has exited');
    throw new CloudlessError(
      'precondition',
      `container "${short}…" has no statistics on node ${nodeId}: ${reason}`,
    );
  }

  /**
   * Lists the newest rates of the running containers of this node, sorted by replica id. Empty when
   * the request names another node.
   * @throws kind `unimplemented` when the node has no statistics.
   */
  async listContainerStats(
    request: ListContainerStatsRequest,
  ): Promise<ListContainerStatsResponse> {
    const { nodeId, clock, replicas } = this.options;
    const selected = (await this.requireStats('containers').listContainers()).filter(
      ({ owner }) => {
        if (request.name !== '')
          return (
            owner.workload === request.name && resolveNamespace(owner) === resolveNamespace(request)
          );
        return request.namespace === '' || resolveNamespace(owner) === request.namespace;
      },
    );
    const containers = selected.map((figures) => {
      const order = replicas.find(figures.owner.replicaId)?.startOrder?.order;
      return toContainerUse(
        figures,
        nodeId,
        order?.case === 'start' ? order.value.spec?.resources : undefined,
        clock,
      );
    });
    containers.sort((a, b) => (a.replicaId < b.replicaId ? -1 : 1));
    const isThisNode = request.nodeId === '' || request.nodeId === nodeId;
    return create(ListContainerStatsResponseSchema, { containers: isThisNode ? containers : [] });
  }

  private requireStats(subject: string): StatsSampler {
    const { stats, nodeId } = this.options;
    if (stats === undefined)
      throw new CloudlessError(
        'unimplemented',
        `statistics of ${subject}: node ${nodeId} does not support them`,
      );
    return stats;
  }
}
