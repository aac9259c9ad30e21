import { clone } from '@bufbuild/protobuf';
import { StreamLogsRequestSchema, type LogEntry, type StreamLogsRequest } from '@cloudless/api';
import { CloudlessError, errorKindOf, sleep } from '@cloudless/base';
import type { ApiServerDeps } from '../ports.js';
import { LogCursor } from './log-cursor.js';
import type { NodeLogReader } from './node-log-reader.js';
import type { StreamClient } from './stream-quota.js';
import type { StreamTarget } from './stream-target.js';

/** Delay between two attempts to reach the agent of a followed replica again. */
const REDIAL_MS = 250;

/** The client of a log stream. */
export interface LogReader {
  readonly signal: AbortSignal;
  readonly client: StreamClient;
}

/** Streams the logs of single replicas and containers. */
export class ReplicaLogStream {
  constructor(
    private readonly deps: Pick<ApiServerDeps, 'state' | 'clock'>,
    private readonly logs: NodeLogReader,
  ) {}

  /**
   * Streams the lines of one replica or container. A followed log is resumed after the agent was
   * disconnected, without repeating lines.
   */
  async *read(
    target: Exclude<StreamTarget, { kind: 'workload' }>,
    request: StreamLogsRequest,
    { signal, client }: LogReader,
  ): AsyncGenerator<LogEntry> {
    const { state, clock } = this.deps;
    const cursor = new LogCursor(request.after);
    const { id, nodeId } = target.replica;
    let begun = false;
    while (!signal.aborted) {
      try {
        if (nodeId === '')
          throw new CloudlessError('precondition', `replica "${id}" has no node yet`);
        const value = createAgentRequest(target, request, cursor, begun);
        for await (const entry of this.logs.read(nodeId, value, signal, client)) {
          begun = true;
          yield* cursor.advance(entry);
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
}

/**
 * Creates the request to the agent of a replica: after an interruption, for the lines that were not
 * received yet.
 */
function createAgentRequest(
  target: Exclude<StreamTarget, { kind: 'workload' }>,
  request: StreamLogsRequest,
  cursor: LogCursor,
  begun: boolean,
): StreamLogsRequest {
  const value = clone(StreamLogsRequestSchema, request);
  Object.assign(value, { name: '', namespace: '', containerId: '', replicaId: '' });
  if (target.kind === 'container') value.containerId = target.containerId;
  else value.replicaId = target.replica.id;
  if (begun) delete value.tailLines;
  value.after = cursor.toPositions();
  return value;
}
