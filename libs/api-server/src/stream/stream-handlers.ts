import { clone, create } from '@bufbuild/protobuf';
import type { HandlerContext } from '@connectrpc/connect';
import {
  ExecCommandRequestSchema,
  GetContainerStatusRequestSchema,
  ExecResultAssembler,
  ListContainersResponseSchema,
  StreamLogsRequestSchema,
  decodeLines,
  type ContainerStatus,
  type ExecCommandRequest,
  type ExecCommandResponse,
  type GetContainerStatusRequest,
  type ListContainersResponse,
  type LogEntry,
  type StreamLogsRequest,
} from '@cloudless/api';
import { CloudlessError, InvalidInputError } from '@cloudless/base';
import { presentContainer } from '../workload/container-presenter.js';
import type { AuditEntry } from '../audit/audit-log.js';
import { toAuditSubject } from '../audit/audit-subject.js';
import type { ApiServerDeps } from '../ports.js';
import type { NodeLogReader } from './node-log-reader.js';
import { ReplicaLogStream, type LogReader } from './replica-log-stream.js';
import { WorkloadLogStream } from './workload-log-stream.js';
import {
  requireContainer,
  findContainer,
  resolveTarget,
  requireRunningReplica,
} from './stream-target.js';
import type { TunnelOpener } from './tunnel-hub.js';

/** Size of the batches that agents send for a client that wants single lines. */
const BATCH_BYTES = 64 * 1024;

/** Handlers of logs, exec and container status, which reach agents through tunnels. */
export class StreamHandlers {
  private readonly replicaLogs: ReplicaLogStream;
  private readonly workloadLogs: WorkloadLogStream;

  constructor(
    private readonly deps: Pick<ApiServerDeps, 'state' | 'clock' | 'log' | 'getConnection'>,
    private readonly tunnels: TunnelOpener,
    logs: NodeLogReader,
  ) {
    this.replicaLogs = new ReplicaLogStream(deps, logs);
    this.workloadLogs = new WorkloadLogStream(deps, this.replicaLogs);
  }

  /**
   * Streams logs. Agents always send lines in batches; a client that does not request batches
   * receives single lines.
   */
  async *streamLogs(request: StreamLogsRequest, context: HandlerContext): AsyncGenerator<LogEntry> {
    const client = this.deps.getConnection(context);
    const singly = request.maxBatchBytes === 0;
    const wanted = Object.assign(clone(StreamLogsRequestSchema, request), {
      maxBatchBytes: singly ? BATCH_BYTES : request.maxBatchBytes,
    });
    const entries = this.streamEntries(wanted, { signal: context.signal, client });
    if (!singly) return yield* entries;
    for await (const entry of entries) yield* decodeLines(entry);
  }

  private async *streamEntries(
    request: StreamLogsRequest,
    reader: LogReader,
  ): AsyncGenerator<LogEntry> {
    const target = resolveTarget(this.deps.state.view(), request);
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

  async execCommand(
    request: ExecCommandRequest,
    entry: AuditEntry,
    context: HandlerContext,
  ): Promise<ExecCommandResponse> {
    const view = this.deps.state.view();
    const target = resolveTarget(view, request);
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
      'unavailable',
      `node "${replica.nodeId}" ended the call without a result`,
    );
  }

  async getContainerStatus(
    request: GetContainerStatusRequest,
    { signal }: HandlerContext,
  ): Promise<ContainerStatus> {
    const { containerId, replica } = findContainer(this.deps.state.view(), request.containerId);
    const value = Object.assign(clone(GetContainerStatusRequestSchema, request), { containerId });
    for await (const { frame } of this.tunnels.open(
      replica.nodeId,
      { case: 'status', value },
      signal,
    )) {
      if (frame.case === 'status') return frame.value;
    }
    throw new CloudlessError(
      'unavailable',
      `node "${replica.nodeId}" ended the call without a result`,
    );
  }

  /** Lists the current container of each replica as last reported by the agents. */
  listContainers(): ListContainersResponse {
    const view = this.deps.state.view();
    const containers = [...view.replicas()]
      .map(({ value }) => value)
      .filter(({ containerId, lost }) => containerId !== '' && !lost)
      .sort((a, b) => (a.id < b.id ? -1 : 1))
      .map((replica) => presentContainer(view, replica));
    return create(ListContainersResponseSchema, { containers });
  }
}
