import { clone, create } from '@bufbuild/protobuf';
import { timestampMs } from '@bufbuild/protobuf/wkt';
import {
  ExecCommandRequestSchema,
  GetContainerStatusRequestSchema,
  ExecResultAssembler,
  ListContainersResponseSchema,
  LogEntrySchema,
  LogPositionSchema,
  StreamLogsRequestSchema,
  decodeLines,
  computeLogCost,
  type ContainerStatus,
  type ExecCommandRequest,
  type ExecCommandResponse,
  type GetContainerStatusRequest,
  type ListContainersResponse,
  type LogEntry,
  type StreamLogsRequest,
} from '@cloudless/api';
import type { ReplicaRecord } from '@cloudless/api/store';
import {
  CloudlessError,
  InvalidInputError,
  errorFields,
  errorKindOf,
  sleep,
} from '@cloudless/base';
import type { HandlerContext } from '@connectrpc/connect';
import { presentContainer } from '../workload/container-presenter.js';
import { ChangedKeys } from '../watch/wakeup.js';
import type { AuditEntry } from '../audit/audit-log.js';
import { toAuditSubject } from '../audit/audit-subject.js';
import type { NodeLogReader } from './node-log-reader.js';
import type { ApiServerDeps } from '../ports.js';
import type { StreamClient } from './stream-quota.js';
import {
  requireContainer,
  findContainer,
  resolveTarget,
  requireRunningReplica,
  type StreamTarget,
} from './stream-target.js';
import type { TunnelOpener } from './tunnel-hub.js';

/** Delay between two attempts to reach the agent of a followed replica again. */
const REDIAL_MS = 250;
/** Bytes, over all replicas, that wait for the reader of a merged stream. */
const MAX_WAITING_BYTES = 256 * 1024;
/** Size of the batches that agents send for a client that wants single lines. */
const BATCH_BYTES = 64 * 1024;

/** The client of a log stream. */
interface LogReader {
  readonly signal: AbortSignal;
  readonly client: StreamClient;
}

/** Handlers of logs, exec and container status, which reach agents through tunnels. */
export class StreamHandlers {
  constructor(
    private readonly deps: Pick<ApiServerDeps, 'state' | 'clock' | 'log' | 'getConnection'>,
    private readonly tunnels: TunnelOpener,
    private readonly logs: NodeLogReader,
  ) {}

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
    if (target.kind !== 'workload') yield* this.streamReplica(target, request, reader);
    else if (request.follow) yield* this.followWorkload(target.uid, request, reader);
    else yield* this.mergeWorkload(target.uid, request, reader);
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

  /**
   * Streams the lines of one replica or container. A followed log is resumed after the agent was
   * disconnected, without repeating lines.
   */
  private async *streamReplica(
    target: Exclude<StreamTarget, { kind: 'workload' }>,
    request: StreamLogsRequest,
    { signal, client }: LogReader,
  ): AsyncGenerator<LogEntry> {
    const { state, clock } = this.deps;
    const seen = new Map(request.after.map(({ containerId, sequence }) => [containerId, sequence]));
    const { id, nodeId } = target.replica;
    let begun = false;
    while (!signal.aborted) {
      try {
        if (nodeId === '')
          throw new CloudlessError('precondition', `replica "${id}" has no node yet`);
        const value = createAgentRequest(target, request, seen, begun);
        for await (const entry of this.logs.read(nodeId, value, signal, client)) {
          begun = true;
          yield* filterNew(entry, seen);
        }
        return;
      } catch (reason) {
        const gone = state.view().replica(id) === undefined;
        if (signal.aborted || !request.follow || errorKindOf(reason) !== 'unavailable' || gone)
          throw reason;
      }
      await sleep(clock, REDIAL_MS, signal).catch(() => undefined);
    }
  }

  /**
   * Streams the logs of all replicas of a workload: a single replica in batches, several replicas
   * merged by time, one line at a time.
   */
  private async *mergeWorkload(
    uid: string,
    request: StreamLogsRequest,
    reader: LogReader,
  ): AsyncGenerator<LogEntry> {
    const replicas = [...this.deps.state.view().replicasOf(uid)]
      .map(({ value }) => value)
      .filter(hasLogs);
    const [only] = replicas;
    if (only !== undefined && replicas.length === 1) {
      yield* this.streamReplica({ kind: 'replica', replica: only }, request, reader);
      return;
    }
    const streams = replicas.map((replica) =>
      splitLines(this.streamReplica({ kind: 'replica', replica }, request, reader)),
    );
    try {
      const heads = await Promise.all(streams.map((stream) => stream.next()));
      for (;;) {
        const next = findEarliest(heads);
        if (next < 0) return;
        const head = heads[next];
        const stream = streams[next];
        if (head === undefined || stream === undefined || head.done === true) return;
        yield head.value;
        heads[next] = await stream.next();
      }
    } finally {
      await Promise.allSettled(streams.map((stream) => stream.return(undefined)));
    }
  }

  /**
   * Follows the logs of all replicas of a workload, including replicas that are created later, in
   * the order in which lines arrive. Ends when the workload is deleted.
   */
  private async *followWorkload(
    uid: string,
    request: StreamLogsRequest,
    { signal, client }: LogReader,
  ): AsyncGenerator<LogEntry> {
    const { state, clock, log } = this.deps;
    const dirty = new ChangedKeys();
    const lines: LogEntry[] = [];
    let waitingBytes = 0;
    const attached = new Set<string>();
    const failures: unknown[] = [];
    let pumping = 0;
    const stopping = new AbortController();
    const stop = (): void => stopping.abort();
    signal.addEventListener('abort', stop, { once: true });
    const waitingForRoom = new Set<() => void>();
    const makeRoom = (): void => {
      for (const resume of waitingForRoom) resume();
      waitingForRoom.clear();
    };
    const pump = async (replica: ReplicaRecord, firstAttach: boolean): Promise<void> => {
      const wanted = clone(StreamLogsRequestSchema, request);
      if (!firstAttach) delete wanted.tailLines;
      try {
        const reader = { signal: stopping.signal, client };
        for await (const entry of this.streamReplica(
          { kind: 'replica', replica },
          wanted,
          reader,
        )) {
          if (isBookmark(entry)) continue;
          while (waitingBytes >= MAX_WAITING_BYTES && !stopping.signal.aborted)
            await new Promise<void>((resolve) => waitingForRoom.add(resolve));
          lines.push(entry);
          waitingBytes += computeLogCost(entry);
          dirty.mark('lines');
        }
      } catch (reason) {
        if (stopping.signal.aborted) return;
        log.debug('log stream of a replica ended', {
          replicaId: replica.id,
          ...errorFields(reason),
        });
        // The stream continues without a replica that is gone, but a reached limit must be
        // reported.
        if (errorKindOf(reason) === 'exhausted') failures.push(reason);
      } finally {
        pumping -= 1;
        dirty.mark('replicas');
      }
    };
    const attach = (firstAttach: boolean): void => {
      for (const { value } of state.view().replicasOf(uid)) {
        if (attached.has(value.id) || !hasLogs(value)) continue;
        attached.add(value.id);
        pumping += 1;
        void pump(value, firstAttach);
      }
    };
    const unsubscribe = state.subscribe((changes) => {
      const about = changes.some(
        ({ kind, id, before, after }) =>
          (kind === 'workload' && id === uid) ||
          (kind === 'replica' && ((after ?? before) as ReplicaRecord).uid === uid),
      );
      if (about) dirty.mark('replicas');
    });
    try {
      attach(true);
      for (
        let keys = await dirty.next(clock, signal);
        keys !== undefined;
        keys = await dirty.next(clock, signal)
      ) {
        if (keys.length === 0) yield create(LogEntrySchema);
        attach(false);
        for (let entry = lines.shift(); entry !== undefined; entry = lines.shift()) {
          waitingBytes -= computeLogCost(entry);
          yield entry;
          if (waitingBytes < MAX_WAITING_BYTES) makeRoom();
        }
        if (failures.length > 0) throw failures[0];
        // Waits for the remaining lines of the last replicas.
        if (state.view().workload(uid) === undefined && pumping === 0 && lines.length === 0) return;
      }
    } finally {
      unsubscribe();
      signal.removeEventListener('abort', stop);
      stopping.abort();
      makeRoom();
    }
  }
}

/**
 * Creates the request to the agent of a replica: after an interruption, for the lines that were not
 * received yet.
 */
function createAgentRequest(
  target: Exclude<StreamTarget, { kind: 'workload' }>,
  request: StreamLogsRequest,
  seen: ReadonlyMap<string, bigint>,
  begun: boolean,
): StreamLogsRequest {
  const value = clone(StreamLogsRequestSchema, request);
  Object.assign(value, { name: '', namespace: '', containerId: '', replicaId: '' });
  if (target.kind === 'container') value.containerId = target.containerId;
  else value.replicaId = target.replica.id;
  if (begun) delete value.tailLines;
  value.after = [...seen].map(([containerId, sequence]) =>
    create(LogPositionSchema, { containerId, sequence }),
  );
  return value;
}

/** Returns the part of an entry that was not received yet, and records its position in `seen`. */
function filterNew(entry: LogEntry, seen: Map<string, bigint>): readonly LogEntry[] {
  const { containerId, sequence, position, skipped } = entry;
  const known = seen.get(containerId) ?? 0n;
  if (sequence === 0n) {
    if (position !== undefined && !seen.has(containerId)) seen.set(containerId, position);
    if (skipped !== undefined) {
      if (skipped.lastSequence <= known) return [];
      seen.set(containerId, skipped.lastSequence);
    }
    return [entry];
  }
  const last = entry.lastSequence ?? sequence;
  if (last <= known) return [];
  seen.set(containerId, last);
  return sequence > known ? [entry] : decodeLines(entry).filter((line) => line.sequence > known);
}

/** True for an entry that only shows that the stream is alive. */
function isBookmark({ sequence, position, skipped }: LogEntry): boolean {
  return sequence === 0n && position === undefined && skipped === undefined;
}

async function* splitLines(entries: AsyncIterable<LogEntry>): AsyncGenerator<LogEntry> {
  for await (const entry of entries) yield* decodeLines(entry);
}

function hasLogs(replica: ReplicaRecord): boolean {
  return replica.nodeId !== '' && replica.containerId !== '' && !replica.lost;
}

/** Index of the stream whose next line is the oldest; -1 when all streams have ended. */
function findEarliest(heads: readonly IteratorResult<LogEntry, unknown>[]): number {
  let best = -1;
  let bestMs = Number.POSITIVE_INFINITY;
  for (const [index, head] of heads.entries()) {
    if (head.done === true) continue;
    const at = head.value.time === undefined ? 0 : timestampMs(head.value.time);
    if (at >= bestMs && best >= 0) continue;
    best = index;
    bestMs = at;
  }
  return best;
}
