import { clone } from '@bufbuild/protobuf';
import type { HandlerContext } from '@connectrpc/connect';
import {
  AgentService,
  CoordinatorService,
  ExecCommandRequestSchema,
  GetContainerStatusRequestSchema,
  ExecResultAssembler,
  StreamLogsRequestSchema,
  decodeLines,
  findPreviousConflict,
  type ContainerStatus,
  type ExecCommandRequest,
  type ExecCommandResponse,
  type GetContainerStatusRequest,
  type LogEntry,
  type StreamLogsRequest,
} from '@cloudless/api';
import { CloudlessError, InvalidInputError } from '@cloudless/base';
import { CallAccess, type AccessDeps } from '../access/call-access.js';
import type { AuditEntry } from '../audit/audit-log.js';
import { toAuditSubject } from '../audit/audit-subject.js';
import type { ApiServerDeps } from '../ports.js';
import type { NodeLogReader } from './node-log-reader.js';
import { ReplicaLogStream, type LogReader } from './replica-log-stream.js';
import { WorkloadLogStream } from './workload-log-stream.js';
import {
  requireContainer,
  findContainer,
  listPreviousContainers,
  resolveTarget,
  requireRunningReplica,
  type StreamTarget,
} from './stream-target.js';
import type { TunnelOpener } from './tunnel-hub.js';

/** The calls whose rules apply; AgentService has the same rules for its calls of these names. */
const calls = CoordinatorService.method;

/** Size of the batches that agents send when the client requests single lines. */
const BATCH_BYTES = 64 * 1024;

/** Handlers of the log, exec and container calls, which reach agents through tunnels. */
export class StreamHandlers {
  private readonly access: CallAccess;
  private readonly replicaLogs: ReplicaLogStream;
  private readonly workloadLogs: WorkloadLogStream;

  constructor(
    private readonly deps: AccessDeps & Pick<ApiServerDeps, 'clock' | 'log' | 'getConnection'>,
    private readonly tunnels: TunnelOpener,
    logs: NodeLogReader,
  ) {
    this.access = new CallAccess(deps);
    this.replicaLogs = new ReplicaLogStream(deps, logs);
    this.workloadLogs = new WorkloadLogStream(deps, this.replicaLogs);
  }

  /**
   * Streams the logs of a container, a replica or a workload. Agents send lines in batches; a
   * client whose `max_batch_bytes` is 0 receives single lines.
   */
  async *streamLogs(request: StreamLogsRequest, context: HandlerContext): AsyncGenerator<LogEntry> {
    const client = this.deps.getConnection(context);
    const isSingleLines = request.maxBatchBytes === 0;
    const batchRequest = Object.assign(clone(StreamLogsRequestSchema, request), {
      maxBatchBytes: isSingleLines ? BATCH_BYTES : request.maxBatchBytes,
    });
    const permission = this.access.createTargetPermission(context, calls.streamLogs);
    const target = resolveTarget(this.deps.state.view(), request, permission);
    const entries = this.streamEntries(target, batchRequest, { signal: context.signal, client });
    if (!isSingleLines) return yield* entries;
    for await (const entry of entries) yield* decodeLines(entry);
  }

  private async *streamEntries(
    target: StreamTarget,
    request: StreamLogsRequest,
    reader: LogReader,
  ): AsyncGenerator<LogEntry> {
    if (request.previous) {
      yield* this.streamPrevious(target, request, reader);
      return;
    }
    if (request.afterSequence > 0n && target.kind !== 'container') {
      throw new InvalidInputError([
        {
          field: 'after_sequence',
          message: 'needs container_id: sequence numbers count within one container',
        },
      ]);
    }
    if (target.kind !== 'workload') yield* this.replicaLogs.read(target, request, reader);
    else if (request.follow) yield* this.workloadLogs.follow(target.uid, request, reader);
    else yield* this.workloadLogs.merge(target.uid, request, reader);
  }

  /** Streams the lines of the earlier container of a replica, or of each replica of a workload. */
  private async *streamPrevious(
    target: StreamTarget,
    request: StreamLogsRequest,
    reader: LogReader,
  ): AsyncGenerator<LogEntry> {
    const conflict = findPreviousConflict(request);
    if (conflict !== undefined || target.kind === 'container')
      throw new InvalidInputError([
        { field: 'previous', message: `cannot be combined with ${conflict ?? 'container_id'}` },
      ]);
    const containers = listPreviousContainers(this.deps.state.view(), target);
    yield* this.workloadLogs.mergeTargets(containers, request, reader);
  }

  /**
   * Runs a command in a container and returns its output and exit code. For a workload, the command
   * runs in one of its running replicas.
   * @throws kind `precondition` when no container runs, `unavailable` when the node cannot be
   *   reached or ends the call without a result.
   */
  async execCommand(
    request: ExecCommandRequest,
    entry: AuditEntry,
    context: HandlerContext,
  ): Promise<ExecCommandResponse> {
    const view = this.deps.state.view();
    const permission = this.access.createTargetPermission(context, calls.execCommand);
    const target = resolveTarget(view, request, permission);
    const replica =
      target.kind === 'workload' ? requireRunningReplica(view, target) : target.replica;
    const containerId = requireContainer(target, replica);
    const value = Object.assign(clone(ExecCommandRequestSchema, request), {
      containerId,
      replicaId: '',
      namespace: '',
      name: '',
    });
    await entry.recordStart({ ...toAuditSubject(view, replica), command: request.command });
    const client = this.deps.getConnection(context);
    const frames = this.tunnels.open(
      replica.nodeId,
      { case: 'exec', value },
      context.signal,
      undefined,
      client,
    );
    const result = new ExecResultAssembler();
    for await (const { frame } of frames) {
      if (frame.case === 'execPiece') result.add(frame.value);
      if (frame.case === 'exec') return result.finish(frame.value);
    }
    throw new CloudlessError(
      'STREAM_INTERRUPTED',
      `node "${replica.nodeId}" ended the call without a result`,
    );
  }

  /** Returns the status of a container as its agent sees it now. */
  async getContainerStatus(
    request: GetContainerStatusRequest,
    context: HandlerContext,
  ): Promise<ContainerStatus> {
    const { signal } = context;
    const { containerId, replica } = findContainer(
      this.deps.state.view(),
      request.containerId,
      this.access.createTargetPermission(context, AgentService.method.getContainerStatus),
    );
    const value = Object.assign(clone(GetContainerStatusRequestSchema, request), { containerId });
    for await (const { frame } of this.tunnels.open(
      replica.nodeId,
      { case: 'status', value },
      signal,
    )) {
      if (frame.case === 'status') return frame.value;
    }
    throw new CloudlessError(
      'STREAM_INTERRUPTED',
      `node "${replica.nodeId}" ended the call without a result`,
    );
  }
}
