import { clone } from '@bufbuild/protobuf';
import { StreamLogsRequestSchema, type LogEntry, type StreamLogsRequest } from '@cloudless/api';
import { CloudlessError, errorKindOf, sleep } from '@cloudless/base';
import type { ApiServerDeps } from '../ports.js';
import { LogCursor } from './log-cursor.js';
import type { NodeLogReader } from './node-log-reader.js';
import type { StreamClient } from './stream-quota.js';
import type { LogTarget } from './stream-target.js';
import { createUnreadableEntry } from './unreadable-log.js';

/** Delay before the agent of a followed replica is dialled again, milliseconds. */
const REDIAL_MS = 250;

/**
 * Time for which the log of a followed replica is unreadable before the stream reports that,
 * milliseconds. After a restart of the coordinator or a change of the leader, agents connect again
 * within this time.
 */
const OUTAGE_NOTICE_MS = 5_000;

/** The client of a log stream. */
export interface LogReader {
  /** Aborted when the client disconnects. */
  readonly signal: AbortSignal;
  readonly client: StreamClient;
}

/** Streams the logs of single replicas and containers. */
export class ReplicaLogStream {
  constructor(
    private readonly deps: Pick<ApiServerDeps, 'state' | 'clock'>,
    private readonly logs: Pick<NodeLogReader, 'read'>,
  ) {}

  /**
   * Streams the lines of one replica or container. A followed log is resumed without repeated lines
   * when the agent was disconnected, as long as the replica exists; after 5 s without the agent, an
   * entry with `unreadable` says so, once for each interruption.
   * @throws kind `precondition` when the replica has no node yet, `unavailable` when the node
   *   cannot be reached and the log is not followed, and other errors of the agent.
   */
  async *read(
    target: LogTarget,
    request: StreamLogsRequest,
    { signal, client }: LogReader,
  ): AsyncGenerator<LogEntry> {
    const { state, clock } = this.deps;
    const cursor = new LogCursor(request.after);
    const { id, nodeId } = target.replica;
    let hasReceived = false;
    /** Time of the first failed attempt since the last entry. */
    let failedAtMs: number | undefined;
    let isReported = false;
    while (!signal.aborted) {
      try {
        if (nodeId === '')
          throw new CloudlessError('REPLICA_NOT_RUNNING', `replica "${id}" has no node yet`);
        const value = createAgentRequest(target, request, cursor, hasReceived);
        for await (const entry of this.logs.read(nodeId, value, signal, client)) {
          hasReceived = true;
          failedAtMs = undefined;
          isReported = false;
          yield* cursor.advance(entry);
        }
        return;
      } catch (reason) {
        const isDeleted = state.view().replica(id) === undefined;
        if (signal.aborted || !request.follow || errorKindOf(reason) !== 'unavailable' || isDeleted)
          throw reason;
        failedAtMs ??= clock.now();
        if (!isReported && clock.now() - failedAtMs >= OUTAGE_NOTICE_MS) {
          isReported = true;
          yield createUnreadableEntry(target, reason, /* retried */ true);
        }
      }
      await sleep(clock, REDIAL_MS, signal).catch(() => undefined);
    }
  }
}

/**
 * Creates the request to the agent of a replica, for the lines after the position of the cursor.
 * @param hasReceived - True after the first entry: `tail_lines` no longer applies.
 */
function createAgentRequest(
  target: LogTarget,
  request: StreamLogsRequest,
  cursor: LogCursor,
  hasReceived: boolean,
): StreamLogsRequest {
  const value = clone(StreamLogsRequestSchema, request);
  Object.assign(value, {
    name: '',
    namespace: '',
    containerId: '',
    replicaId: '',
    previous: false,
  });
  if (target.kind === 'container') value.containerId = target.containerId;
  else value.replicaId = target.replica.id;
  if (hasReceived) delete value.tailLines;
  value.after = cursor.toPositions();
  return value;
}
