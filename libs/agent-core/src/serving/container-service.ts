import { create } from '@bufbuild/protobuf';
import { durationMs, timestampFromMs } from '@bufbuild/protobuf/wkt';
import { CloudlessError, InvalidInputError, definedFields, type Clock } from '@cloudless/base';
import {
  ContainerStatus_State,
  ContainerStatusSchema,
  EndpointSchema,
  ExecCommandResponseSchema,
  readFirstMessage,
  ListContainersResponseSchema,
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
import type { ContainerRuntime } from '@cloudless/runtime';
import type { NodeReplicas } from '../replica/node-replicas.js';
import type { StatsSampler } from '../stats/stats-sampler.js';
import {
  ContainerLookup,
  type ContainerSelector,
  type OwnedContainer,
} from './container-lookup.js';
import { runExec } from './exec-stream.js';
import { LogService } from './log-service.js';
import { OutputCollector } from './output-collector.js';
import { forwardPort } from './port-forward.js';
import { StatsService } from './stats-service.js';
import type { TcpDial } from './tcp-dial.js';

/** Longest time without a message in an exec or port-forward stream, milliseconds. */
const KEEP_ALIVE_MS = 15_000;
/** Timeout of a command whose caller sets none, milliseconds. */
export const EXEC_TIMEOUT_MS = 30_000;

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

/** Decides whether a caller may use the container that a call selects; throws to refuse. */
export type AdmitCall = (selector: ContainerSelector) => Promise<void>;

/**
 * Serves logs, commands, port-forward and states of this node's containers, for tunnels and for
 * AgentService.
 */
export class ContainerService {
  private readonly lookup: ContainerLookup;
  private readonly logs: LogService;
  private readonly stats: StatsService;

  constructor(private readonly options: ContainerServiceOptions) {
    this.lookup = new ContainerLookup(options);
    this.logs = new LogService(options, this.lookup);
    this.stats = new StatsService(options, this.lookup);
  }

  /**
   * Streams the log lines of a container, a replica or all replicas of a workload that are on this
   * node when the call begins; in batches when the request sets `max_batch_bytes`. Sends a bookmark
   * after each 15 s without an entry. Ends when `signal` is aborted.
   * @throws kind `notFound`, or `invalid` naming the field.
   */
  streamLogs(request: StreamLogsRequest, signal: AbortSignal): AsyncGenerator<LogEntry> {
    return this.logs.streamLogs(request, signal);
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
    const { status, owner } = await this.lookup.requireRunningContainer(request);
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

  /**
   * Serves the Exec call, whose first message contains the command.
   * @param admit - Called with the first message; throws when the caller may not make the call.
   * @throws kind `invalid` when the first message is no start message, and as {@link runExec}.
   */
  async *exec(
    requests: AsyncIterable<ExecRequest>,
    signal: AbortSignal,
    admit: AdmitCall = admitAll,
  ): AsyncGenerator<ExecResponse> {
    const items = requests[Symbol.asyncIterator]();
    const first = (await readFirstMessage(items, this.options.clock))?.request;
    if (first?.case !== 'start') throw createStartMissingError();
    await admit(first.value);
    yield* this.runExec(first.value, { [Symbol.asyncIterator]: () => items }, signal);
  }

  /**
   * Runs a command with streamed input and output. Without a timeout in `start` the command has no
   * time limit.
   * @param requests - The messages after the first.
   * @throws as {@link execCommand}.
   */
  async *runExec(
    start: ExecStart,
    requests: AsyncIterable<ExecRequest>,
    signal: AbortSignal,
  ): AsyncGenerator<ExecResponse> {
    const { status, owner } = await this.lookup.requireRunningContainer(start);
    const target = { containerId: status.containerId, replicaId: owner.replicaId };
    yield* runExec(
      start,
      target,
      requests,
      { ...this.options, keepAliveMs: KEEP_ALIVE_MS },
      signal,
    );
  }

  /**
   * Serves the PortForward call, whose first message contains replica and port.
   * @param admit - As for {@link exec}.
   * @throws kind `invalid` when the first message is no start message, and as {@link forward}.
   */
  async *portForward(
    requests: AsyncIterable<PortForwardRequest>,
    signal: AbortSignal,
    admit: AdmitCall = admitAll,
  ): AsyncGenerator<PortForwardResponse> {
    const items = requests[Symbol.asyncIterator]();
    const first = (await readFirstMessage(items, this.options.clock))?.request;
    if (first?.case !== 'start') throw createStartMissingError();
    await admit(first.value);
    yield* this.forward(first.value, { [Symbol.asyncIterator]: () => items }, signal);
  }

  /**
   * Forwards one TCP connection to a declared port of a running replica. For a workload, selects a
   * ready replica if there is one.
   * @param requests - The messages after the first.
   * @throws kind `invalid` for a port that is not declared, `unavailable` when the connection is
   *   refused, `unimplemented` when this agent has no `dial`.
   */
  async *forward(
    start: PortForwardStart,
    requests: AsyncIterable<PortForwardRequest>,
    signal: AbortSignal,
  ): AsyncGenerator<PortForwardResponse> {
    const { dial, clock, nodeId, replicas } = this.options;
    if (dial === undefined)
      throw new CloudlessError('unimplemented', `port_forward: node ${nodeId} does not support it`);
    const { status, owner } = await this.lookup.requireRunningContainer(
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
      { dial, clock, keepAliveMs: KEEP_ALIVE_MS },
      signal,
    );
  }

  /**
   * Returns the state of the container with an id or a unique prefix of the id.
   * @throws kind `notFound`; `invalid` for an id prefix that matches several containers.
   */
  async getContainerStatus(request: GetContainerStatusRequest): Promise<ContainerStatus> {
    if (request.containerId === '')
      throw new InvalidInputError([{ field: 'container_id', message: 'is required' }]);
    return this.toStatus(await this.lookup.requireContainer(request.containerId));
  }

  /** Lists all containers of this node, including exited containers kept for their logs. */
  async listContainers(): Promise<ListContainersResponse> {
    const containers = await this.lookup.listOwned();
    return create(ListContainersResponseSchema, {
      containers: containers.map((container) => this.toStatus(container)),
    });
  }

  /** See {@link StatsService.getContainerStats}. */
  getContainerStats(request: GetContainerStatsRequest): Promise<ContainerStats> {
    return this.stats.getContainerStats(request);
  }

  /** See {@link StatsService.listContainerStats}. */
  listContainerStats(request: ListContainerStatsRequest): Promise<ListContainerStatsResponse> {
    return this.stats.listContainerStats(request);
  }

  /**
   * Returns the id of the replica that a request selects; of a workload, one of its replicas on this
   * node, all of which are in the same namespace.
   * @throws kind `notFound`, `invalid`.
   */
  async findReplicaId(selector: Partial<ContainerSelector>): Promise<string> {
    const { containerId = '', replicaId = '', namespace = '', name = '' } = selector;
    if (containerId !== '')
      return (await this.lookup.requireContainer(containerId)).owner.replicaId;
    if (replicaId !== '') return this.lookup.requireReplicaId(replicaId);
    const [first = ''] = await this.lookup.requireReplicaIds({ namespace, name });
    return first;
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

const admitAll: AdmitCall = () => Promise.resolve();

function createStartMissingError(): InvalidInputError {
  return new InvalidInputError([{ field: 'start', message: 'must be the first message' }]);
}
