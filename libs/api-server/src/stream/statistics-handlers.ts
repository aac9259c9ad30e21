import { clone, create } from '@bufbuild/protobuf';
import type { HandlerContext } from '@connectrpc/connect';
import {
  AgentService,
  GetContainerStatsRequestSchema,
  ListContainerStatsRequestSchema,
  ListContainerStatsResponseSchema,
  SilentNodeSchema,
  resolveNamespace,
  paginate,
  type ContainerStats,
  type ContainerUse,
  type GetContainerStatsRequest,
  type ListContainerStatsRequest,
  type ListContainerStatsResponse,
  type SilentNode,
} from '@cloudless/api';
import type { ReplicaRecord } from '@cloudless/api/store';
import {
  CloudlessError,
  InvalidInputError,
  errorKindOf,
  errorMessageOf,
  type StopSignal,
} from '@cloudless/base';
import { isLive } from '@cloudless/cluster-state';
import type { ApiServerDeps } from '../ports.js';
import { CallAccess, getReplicaNamespace, type AccessDeps } from '../access/call-access.js';
import { requireWorkload } from '../lookup.js';
import { requireContainer, resolveTarget } from './stream-target.js';
import type { TunnelOpener } from './tunnel-hub.js';

/**
 * Nodes that are queried at the same time for one call, so that a call does not open many tunnels.
 */
const PARALLEL_NODES = 16;
/**
 * Time after which a node is listed in `silent_nodes`, milliseconds. An agent answers at once: it
 * returns samples that it has already taken.
 */
const NODE_DEADLINE_MS = 3_000;

const calls = AgentService.method;

/** Handlers of the statistics calls, which query agents through tunnels. */
export class StatisticsHandlers {
  private readonly access: CallAccess;

  constructor(
    private readonly deps: AccessDeps & Pick<ApiServerDeps, 'clock'>,
    private readonly tunnels: TunnelOpener,
  ) {
    this.access = new CallAccess(deps);
  }

  /**
   * Returns the resource usage of one running container.
   * @throws kind `invalid` when the request names no container or two, `notFound`, `precondition`
   *   when the replica has no running container, `unavailable` when its node cannot be reached.
   */
  async getContainerStats(
    request: GetContainerStatsRequest,
    context: HandlerContext,
  ): Promise<ContainerStats> {
    const { signal } = context;
    if (request.containerId === '' && request.replicaId === '') {
      throw new InvalidInputError([
        { field: 'container_id', message: 'either container_id or replica_id is required' },
      ]);
    }
    const target = resolveTarget(
      this.deps.state.view(),
      { ...request, namespace: '', name: '' },
      this.access.createTargetPermission(context, calls.getContainerStats),
    );
    if (target.kind === 'workload')
      throw new CloudlessError('internal', 'a request without a name means no workload');
    const containerId = requireContainer(target, target.replica);
    const { nodeId } = target.replica;
    const value = create(GetContainerStatsRequestSchema, { containerId });
    for await (const { frame } of this.tunnels.open(nodeId, { case: 'stats', value }, signal)) {
      if (frame.case === 'stats') return frame.value;
    }
    throw new CloudlessError(
      'STREAM_INTERRUPTED',
      `node "${nodeId}" ended the call without a result`,
    );
  }

  /**
   * Lists the resource usage of the containers of one page of running replicas. Queries the nodes
   * of these replicas; a node that does not answer is listed in `silent_nodes` with the reason.
   * @throws kind `notFound` when the requested workload or node does not exist. A caller without a
   *   role in the whole cluster gets no containers for an unknown node.
   */
  async listContainerStats(
    request: ListContainerStatsRequest,
    context: HandlerContext,
  ): Promise<ListContainerStatsResponse> {
    const { signal } = context;
    const { namespace, name, nodeId } = request;
    const isVisible = this.access.createFilter(
      this.access.getCaller(context),
      calls.listContainerStats,
      name === '' ? namespace : resolveNamespace(request),
    );
    const replicas = this.listRunningReplicas(request, isVisible).sort((a, b) =>
      toSortKey(a) < toSortKey(b) ? -1 : 1,
    );
    const filter = ['container stats', namespace, name, nodeId];
    const page = paginate(replicas, toSortKey, request, { filter });
    const nodeIdByReplica = new Map(page.items.map((replica) => [replica.id, replica.nodeId]));
    const nodeIds = [...new Set(page.items.map((replica) => replica.nodeId))];
    const nodeRequest = Object.assign(clone(ListContainerStatsRequestSchema, request), {
      nodeId: '',
      pageSize: 0,
      pageToken: '',
    });
    const containers: ContainerUse[] = [];
    const silentNodes: SilentNode[] = [];
    await forEachParallel(PARALLEL_NODES, nodeIds, async (id) => {
      try {
        const reported = await this.queryNode(id, nodeRequest, signal);
        // Drops containers of other nodes, and of replicas that are not on this page.
        const listed = reported.filter(({ replicaId }) => nodeIdByReplica.get(replicaId) === id);
        containers.push(...listed.map((use) => Object.assign(use, { nodeId: id })));
      } catch (reason) {
        if (signal.aborted) throw reason;
        silentNodes.push(create(SilentNodeSchema, { nodeId: id, reason: describeReason(reason) }));
      }
    });
    containers.sort((a, b) =>
      toSortKey({ ...a, id: a.replicaId }) < toSortKey({ ...b, id: b.replicaId }) ? -1 : 1,
    );
    silentNodes.sort((a, b) => (a.nodeId < b.nodeId ? -1 : 1));
    return create(ListContainerStatsResponseSchema, {
      containers,
      silentNodes,
      nextPageToken: page.nextPageToken,
    });
  }

  /** @throws kind `notFound` when the workload or the node does not exist. */
  private listRunningReplicas(
    { namespace, name, nodeId }: ListContainerStatsRequest,
    isVisible: (namespace: string) => boolean,
  ): ReplicaRecord[] {
    const view = this.deps.state.view();
    if (nodeId !== '' && view.node(nodeId) === undefined && isVisible(''))
      throw new CloudlessError('NODE_NOT_FOUND', `node "${nodeId}" not found`);
    const uid = name === '' ? undefined : requireWorkload(view, { namespace, name }).value.uid;
    const candidates = [...(uid === undefined ? view.replicas() : view.replicasOf(uid))].map(
      ({ value }) => value,
    );
    return candidates.filter((replica) => {
      if (!isLive(replica) || replica.containerId === '' || replica.nodeId === '') return false;
      if (nodeId !== '' && replica.nodeId !== nodeId) return false;
      if (!isVisible(getReplicaNamespace(view, replica))) return false;
      if (name !== '' || namespace === '') return true;
      const workload = view.workload(replica.uid)?.value;
      return workload !== undefined && resolveNamespace(workload) === namespace;
    });
  }

  /** @throws kind `deadline` when the node does not answer within {@link NODE_DEADLINE_MS}. */
  private async queryNode(
    nodeId: string,
    value: ListContainerStatsRequest,
    signal: AbortSignal,
  ): Promise<readonly ContainerUse[]> {
    const stopping = new AbortController();
    const stop = (): void => stopping.abort();
    signal.addEventListener('abort', stop, { once: true });
    let timedOut = false;
    const timer = this.deps.clock.setTimer(NODE_DEADLINE_MS, () => {
      timedOut = true;
      stop();
    });
    try {
      for await (const { frame } of this.tunnels.open(
        nodeId,
        { case: 'statsList', value },
        stopping.signal as StopSignal,
      )) {
        if (frame.case === 'statsList') return frame.value.containers;
      }
      throw new CloudlessError(
        'STREAM_INTERRUPTED',
        `node "${nodeId}" ended the call without a result`,
      );
    } catch (reason) {
      if (timedOut)
        throw new CloudlessError('deadline', `no answer within ${NODE_DEADLINE_MS / 1_000} s`, {
          cause: reason,
        });
      throw reason;
    } finally {
      timer.cancel();
      signal.removeEventListener('abort', stop);
    }
  }
}

const toSortKey = ({ nodeId, id }: Pick<ReplicaRecord, 'nodeId' | 'id'>): string =>
  `${nodeId}/${id}`;

/** Returns the reason for `silent_nodes`. The details of an internal error are not shown. */
const describeReason = (reason: unknown): string =>
  errorKindOf(reason) === 'internal' ? 'internal error' : errorMessageOf(reason);

/** Runs `work` for each item, for at most `limit` items at a time. Rejects with the first error. */
async function forEachParallel<Item>(
  limit: number,
  items: readonly Item[],
  work: (item: Item) => Promise<void>,
): Promise<void> {
  const waiting = [...items];
  const worker = async (): Promise<void> => {
    for (let item = waiting.shift(); item !== undefined; item = waiting.shift()) await work(item);
  };
  await Promise.all(Array.from({ length: Math.min(limit, items.length) }, worker));
}
