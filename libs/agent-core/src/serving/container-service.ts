import { create } from '@bufbuild/protobuf';
import { durationMs, timestampFromMs, timestampMs } from '@bufbuild/protobuf/wkt';
import { definedFields, CloudlessError, InvalidInputError, type Clock } from '@cloudless/base';
import {
  ContainerStatus_State,
  ContainerStatusSchema,
  EndpointSchema,
  ExecCommandResponseSchema,
  readFirstMessage,
  ListContainersResponseSchema,
  ListContainerStatsResponseSchema,
  resolveNamespace,
  OutputStream,
  type ContainerStats,
  type ContainerStatus,
  type ExecCommandRequest,
  type ExecCommandResponse,
  type ExecRequest,
  type ExecResponse,
  type ExecStart,
  type GetContainerStatsRequest,
  type GetContainerStatusRequest,
  type ListContainersResponse,
  type ListContainerStatsRequest,
  type ListContainerStatsResponse,
  type LogEntry,
  type PortForwardRequest,
  type PortForwardResponse,
  type PortForwardStart,
  type StreamLogsRequest,
} from '@cloudless/api';
import { runExec } from './exec-stream.js';
import { forwardPort } from './port-forward.js';
import type { TcpDial } from './tcp-dial.js';
import type {
  ContainerRuntime,
  LogRequest,
  ContainerStatus as RuntimeStatus,
} from '@cloudless/runtime';
import type { ContainerOwner } from '../container/container-labels.js';
import type { NodeReplicas } from '../replica/node-replicas.js';
import { OutputCollector } from './output-collector.js';
import { createBookmark, createPosition, toLogEntries } from '../container/log-entry.js';
import { followReplica, resumeAfter } from './follow-replica.js';
import type { StatsSampler } from '../stats/stats-sampler.js';
import { toContainerStats, toContainerUse } from '../stats/to-container-stats.js';
import { wrapEach, withKeepAlive, mergeByArrival, mergeSorted, flattenLists } from './streams.js';

/**
 * Longest time without an entry in a stream of log entries, milliseconds; a bookmark is sent then.
 */
export const BOOKMARK_INTERVAL_MS = 15_000;
/** Timeout of a command whose caller sets none, milliseconds. */
export const EXEC_TIMEOUT_MS = 30_000;
const MIN_PREFIX = 12;

export interface ContainerServiceOptions {
  readonly nodeId: string;
  readonly runtime: ContainerRuntime;
  readonly replicas: NodeReplicas;
  readonly clock: Clock;
  /** Opens TCP connections to ports of replicas; absent: port-forward is rejected. */
  readonly dial?: TcpDial;
  /** Absent: statistics are rejected. */
  readonly stats?: StatsSampler;
}

type ContainerSelector = Pick<
  ExecCommandRequest,
  'containerId' | 'replicaId' | 'namespace' | 'name'
>;

interface OwnedContainer {
  readonly status: RuntimeStatus;
  readonly owner: ContainerOwner;
}

/**
 * Logs, commands, port-forward and states of this node's containers. Used by tunnels and by
 * AgentService.
 */
export class ContainerService {
  constructor(private readonly options: ContainerServiceOptions) {}

  /**
   * Log lines of a container, a replica or all replicas of a workload that are on this node when
   * the call begins; in batches when the request sets `max_batch_bytes`. A bookmark follows
   * whenever there was no entry for 15 s. Ends when `signal` is aborted.
   * @throws kind `notFound`, or `invalid` naming the field.
   */
  async *streamLogs(request: StreamLogsRequest, signal: AbortSignal): AsyncGenerator<LogEntry> {
    const { clock } = this.options;
    let last = { containerId: '', replicaId: '' };
    const entries = await this.openLogEntries(request, signal);
    const filled = withKeepAlive(entries, BOOKMARK_INTERVAL_MS, clock, () => [
      createBookmark(last, clock.wallTime()),
    ]);
    for await (const together of filled) {
      const entry = together.at(-1);
      if (entry !== undefined && entry.sequence !== 0n)
        last = { containerId: entry.containerId, replicaId: entry.replicaId };
      yield* together;
    }
  }

  /**
   * Runs a command until it exits. An aborted signal ends the command and its children.
   * @throws kind `deadline` after the timeout, `precondition` when no container is running,
   *   `notFound`, `invalid`.
   */
  async execCommand(
    request: ExecCommandRequest,
    signal: AbortSignal,
  ): Promise<ExecCommandResponse> {
    const { runtime } = this.options;
    if (request.command.length === 0)
      throw new InvalidInputError([{ field: 'command', message: 'must not be empty' }]);
    const { status, owner } = await this.requireRunningContainer(request);
    const timeoutMs = request.timeout === undefined ? EXEC_TIMEOUT_MS : durationMs(request.timeout);
    const stdin = request.stdin.length > 0 ? { stdin: request.stdin } : {};
    const output = new OutputCollector();
    for await (const event of runtime.exec(
      status.containerId,
      { command: request.command, timeoutMs, ...stdin },
      signal,
    )) {
      if (event.kind === 'output') output.add(event.stream, event.data);
      else {
        return create(ExecCommandResponseSchema, {
          ...output.result(),
          exitCode: event.exitCode,
          containerId: status.containerId,
          replicaId: owner.replicaId,
        });
      }
    }
    throw new CloudlessError('unavailable', 'the command was aborted before it exited');
  }

  /** The Exec call: the first message contains the command. */
  async *exec(
    requests: AsyncIterable<ExecRequest>,
    signal: AbortSignal,
  ): AsyncGenerator<ExecResponse> {
    const items = requests[Symbol.asyncIterator]();
    const first = (await readFirstMessage(items, this.options.clock))?.request;
    if (first?.case !== 'start') throw createStartMissingError();
    yield* this.runExec(first.value, { [Symbol.asyncIterator]: () => items }, signal);
  }

  /** Runs a command with streamed input; otherwise as {@link execCommand}. */
  async *runExec(
    start: ExecStart,
    requests: AsyncIterable<ExecRequest>,
    signal: AbortSignal,
  ): AsyncGenerator<ExecResponse> {
    const { status, owner } = await this.requireRunningContainer(start);
    const target = { containerId: status.containerId, replicaId: owner.replicaId };
    yield* runExec(
      start,
      target,
      requests,
      { ...this.options, keepAliveMs: BOOKMARK_INTERVAL_MS },
      signal,
    );
  }

  /** The PortForward call: the first message contains replica and port. */
  async *portForward(
    requests: AsyncIterable<PortForwardRequest>,
    signal: AbortSignal,
  ): AsyncGenerator<PortForwardResponse> {
    const items = requests[Symbol.asyncIterator]();
    const first = (await readFirstMessage(items, this.options.clock))?.request;
    if (first?.case !== 'start') throw createStartMissingError();
    yield* this.forward(first.value, { [Symbol.asyncIterator]: () => items }, signal);
  }

  /**
   * Forwards one TCP connection to a declared port of a running replica. For a workload, selects a
   * ready replica if there is one.
   * @throws kind `invalid` for a port that is not declared, `unavailable` when the connection is
   *   refused.
   */
  async *forward(
    start: PortForwardStart,
    requests: AsyncIterable<PortForwardRequest>,
    signal: AbortSignal,
  ): AsyncGenerator<PortForwardResponse> {
    const { dial, clock, nodeId, replicas } = this.options;
    if (dial === undefined)
      throw new CloudlessError('unimplemented', `port_forward: node ${nodeId} does not support it`);
    const { status, owner } = await this.requireRunningContainer(
      start,
      (id) => replicas.find(id)?.current.ready === true,
    );
    const order = replicas.find(owner.replicaId)?.startOrder?.order;
    const declared = order?.case === 'start' ? (order.value.spec?.ports ?? []) : [];
    const { containerId, endpoints } = status;
    const target = { containerId, replicaId: owner.replicaId, nodeId, endpoints, declared };
    yield* forwardPort(
      start.port,
      target,
      requests,
      { dial, clock, keepAliveMs: BOOKMARK_INTERVAL_MS },
      signal,
    );
  }

  /** @throws kind `notFound`; `invalid` for an id prefix that matches several containers. */
  async getContainerStatus(request: GetContainerStatusRequest): Promise<ContainerStatus> {
    if (request.containerId === '')
      throw new InvalidInputError([{ field: 'container_id', message: 'is required' }]);
    return this.toStatus(await this.requireContainer(request.containerId));
  }

  /** All containers of this node, including exited ones that are kept for their logs. */
  async listContainers(): Promise<ListContainersResponse> {
    const containers = await this.listOwned();
    return create(ListContainersResponseSchema, {
      containers: containers.map((container) => this.toStatus(container)),
    });
  }

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
    const { status, owner } = await this.requireRunningContainer({
      ...request,
      namespace: '',
      name: '',
    });
    const sample = status.phase === 'running' ? await stats.sampleNow(status) : undefined;
    if (sample !== undefined)
      return toContainerStats({ containerId: status.containerId, owner, nodeId }, sample, clock);
    const short = status.containerId.slice(0, MIN_PREFIX);
    const why =
      status.phase === 'running'
        ? 'its process is not visible to the agent'
        : (status.reason ?? 'it has exited');
    throw new CloudlessError(
      'precondition',
      `container "${short}…" has no statistics on node ${nodeId}: ${why}`,
    );
  }

  /** Newest rates of the running containers of this node. */
  async listContainerStats(
    request: ListContainerStatsRequest,
  ): Promise<ListContainerStatsResponse> {
    const { nodeId, clock, replicas } = this.options;
    const wanted = (await this.requireStats('containers').listContainers()).filter(({ owner }) => {
      if (request.name !== '')
        return (
          owner.workload === request.name && resolveNamespace(owner) === resolveNamespace(request)
        );
      return request.namespace === '' || resolveNamespace(owner) === request.namespace;
    });
    const containers = wanted.map((figures) => {
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

  /**
   * Yields lists of entries: passing single items through several generators costs as much as
   * reading a line.
   */
  private async openLogEntries(
    request: StreamLogsRequest,
    signal: AbortSignal,
  ): Promise<AsyncIterable<readonly LogEntry[]>> {
    const wanted = toLogRequest(request);
    const after = new Map(
      request.after.map(({ containerId, sequence }) => [containerId, sequence]),
    );
    const { maxBatchBytes } = request;
    if (request.containerId !== '') {
      const { status, owner } = await this.requireContainer(request.containerId);
      const from = resumeAfter(wanted, after.get(status.containerId));
      return this.readContainerEntries(
        status.containerId,
        owner.replicaId,
        from,
        maxBatchBytes,
        signal,
      );
    }
    if (request.afterSequence > 0n)
      throw new InvalidInputError([{ field: 'after_sequence', message: 'needs container_id' }]);
    const replicaIds =
      request.replicaId === '' ? await this.requireReplicaIds(request) : [request.replicaId];
    const isSorted = replicaIds.length > 1 && !wanted.follow;
    const batchBytes = isSorted ? 0 : maxBatchBytes;
    const sources = replicaIds.map((replicaId) =>
      this.readReplicaEntries(replicaId, wanted, after, batchBytes, signal),
    );
    const [only] = sources;
    if (sources.length === 1 && only !== undefined) return only;
    return isSorted
      ? wrapEach(mergeSorted(sources.map(flattenLists), compareTime))
      : mergeByArrival(sources);
  }

  private async *readContainerEntries(
    containerId: RuntimeStatus['containerId'],
    replicaId: string,
    wanted: LogRequest,
    maxBatchBytes: number,
    signal: AbortSignal,
  ): AsyncGenerator<readonly LogEntry[]> {
    const { runtime, clock } = this.options;
    for await (const batch of runtime.logBatches(containerId, wanted, signal))
      yield toLogEntries(batch, { containerId, replicaId }, maxBatchBytes, clock.wallTime());
  }

  private async *readReplicaEntries(
    replicaId: string,
    wanted: LogRequest,
    after: ReadonlyMap<string, bigint>,
    maxBatchBytes: number,
    signal: AbortSignal,
  ): AsyncGenerator<readonly LogEntry[]> {
    const { runtime, replicas, nodeId, clock } = this.options;
    if (replicas.find(replicaId) === undefined)
      throw new CloudlessError('notFound', `replica "${replicaId}" is not on node ${nodeId}`);
    const sources = { runtime, replicas };
    for await (const { containerId, batch, position } of followReplica(
      replicaId,
      wanted,
      after,
      sources,
      signal,
    )) {
      const owner = { containerId, replicaId };
      if (batch === undefined) yield [createPosition(owner, position, clock.wallTime())];
      else yield toLogEntries(batch, owner, maxBatchBytes, clock.wallTime());
    }
  }

  private async requireRunningContainer(
    request: ContainerSelector,
    preferred: (replicaId: string) => boolean = () => false,
  ): Promise<OwnedContainer> {
    const { replicas, nodeId } = this.options;
    if (request.containerId !== '') return this.requireContainer(request.containerId);
    if (request.replicaId !== '' && replicas.find(request.replicaId) === undefined) {
      throw new CloudlessError(
        'notFound',
        `replica "${request.replicaId}" is not on node ${nodeId}`,
      );
    }
    const replicaIds =
      request.replicaId === '' ? await this.requireReplicaIds(request) : [request.replicaId];
    const running = (await this.listOwned())
      .filter(
        ({ status, owner }) => status.phase === 'running' && replicaIds.includes(owner.replicaId),
      )
      .sort((a, b) => {
        const preference =
          Number(preferred(b.owner.replicaId)) - Number(preferred(a.owner.replicaId));
        return preference || a.owner.slot - b.owner.slot;
      });
    const [first] = running;
    if (first !== undefined) return first;
    const target =
      request.replicaId === ''
        ? `workload ${resolveNamespace(request)}/${request.name}`
        : `replica ${request.replicaId}`;
    throw new CloudlessError(
      'precondition',
      `${target} has no running container on node ${nodeId}`,
    );
  }

  /**
   * @throws kind `invalid` when the request has no target, `notFound` when no replica of the
   *   workload is on this node.
   */
  private async requireReplicaIds(request: {
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
      'notFound',
      `workload ${namespace}/${request.name} has no replica on node ${nodeId}`,
    );
  }

  private async requireContainer(idOrPrefix: string): Promise<OwnedContainer> {
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
      throw new CloudlessError('notFound', `container "${short}" is not on node ${nodeId}`);
    if (found.length === 1) return first;
    throw new InvalidInputError([
      {
        field: 'container_id',
        message: `"${short}" matches ${found.length} containers; give more digits`,
      },
    ]);
  }

  private async listOwned(): Promise<readonly OwnedContainer[]> {
    const { runtime, replicas } = this.options;
    return (await runtime.list()).flatMap((status) => {
      const owner = replicas.findOwner(status);
      return owner === undefined ? [] : [{ status, owner }];
    });
  }

  private toStatus({ status, owner }: OwnedContainer): ContainerStatus {
    const order = this.options.replicas.find(owner.replicaId)?.startOrder?.order;
    const spec = order?.case === 'start' ? order.value.spec : undefined;
    return create(ContainerStatusSchema, {
      containerId: status.containerId,
      replicaId: owner.replicaId,
      namespace: owner.namespace,
      workload: owner.workload,
      nodeId: this.options.nodeId,
      state:
        status.phase === 'running' ? ContainerStatus_State.RUNNING : ContainerStatus_State.EXITED,
      pid: status.pid ?? 0,
      startedAt: timestampFromMs(status.startedAtMs),
      ...(status.finishedAtMs === undefined
        ? {}
        : { finishedAt: timestampFromMs(status.finishedAtMs) }),
      ...definedFields({ exitCode: status.exitCode }),
      reason: status.reason ?? '',
      runtime: status.runtime ?? this.options.runtime.name,
      ip: status.ip ?? '',
      runtimeId: status.runtimeId ?? '',
      imageDigest: status.imageDigest ?? '',
      image: spec?.image ?? '',
      command: [...(spec?.command ?? []), ...(spec?.args ?? [])],
      endpoints:
        status.phase === 'running'
          ? status.endpoints.map((endpoint) => create(EndpointSchema, endpoint))
          : [],
    });
  }
}

function createStartMissingError(): InvalidInputError {
  return new InvalidInputError([{ field: 'start', message: 'must be the first message' }]);
}

function toLogRequest(request: StreamLogsRequest): LogRequest {
  const streams = request.streams.map((stream) =>
    stream === OutputStream.STDERR ? ('stderr' as const) : ('stdout' as const),
  );
  return {
    follow: request.follow,
    ...definedFields({ tailLines: request.tailLines }),
    ...(request.since === undefined ? {} : { sinceMs: timestampMs(request.since) }),
    ...(request.afterSequence > 0n ? { afterSequence: request.afterSequence } : {}),
    ...(streams.length > 0 ? { streams } : {}),
  };
}

function compareTime(a: LogEntry, b: LogEntry): number {
  return (
    (a.time === undefined ? 0 : timestampMs(a.time)) -
    (b.time === undefined ? 0 : timestampMs(b.time))
  );
}
