import { timestampMs } from '@bufbuild/protobuf/wkt';
import {
  CloudlessError,
  InvalidInputError,
  definedFields,
  type Clock,
  type ContainerId,
} from '@cloudless/base';
import {
  OutputStream,
  findPreviousConflict,
  type LogEntry,
  type StreamLogsRequest,
} from '@cloudless/api';
import type { ContainerRuntime, ContainerStatus, LogRequest } from '@cloudless/runtime';
import { createBookmark, createPosition, toLogEntries } from '../container/log-entry.js';
import type { NodeReplicas } from '../replica/node-replicas.js';
import type { ContainerLookup } from './container-lookup.js';
import { followReplica, resumeAfter } from './follow-replica.js';
import { withKeepAlive } from './keep-alive.js';
import { flattenLists, mergeByArrival, mergeSorted, wrapEach } from './merge-streams.js';

/** Time without an entry after which a stream of log entries sends a bookmark, milliseconds. */
export const BOOKMARK_INTERVAL_MS = 15_000;

export interface LogServiceOptions {
  readonly nodeId: string;
  readonly runtime: ContainerRuntime;
  readonly replicas: NodeReplicas;
  readonly clock: Clock;
}

/** Streams the logs of this node's containers. */
export class LogService {
  constructor(
    private readonly options: LogServiceOptions,
    private readonly lookup: ContainerLookup,
  ) {}

  /**
   * Streams the log lines of a container, a replica or all replicas of a workload that are on this
   * node when the call begins; in batches when the request sets `max_batch_bytes`. Sends a bookmark
   * after each 15 s without an entry. Ends when `signal` is aborted.
   * @throws kind `notFound`, or `invalid` naming the field.
   */
  async *streamLogs(request: StreamLogsRequest, signal: AbortSignal): AsyncGenerator<LogEntry> {
    const { clock } = this.options;
    let last = { containerId: '', replicaId: '' };
    const entries = await this.openLogEntries(request, signal);
    const withBookmarks = withKeepAlive(entries, BOOKMARK_INTERVAL_MS, clock, () => [
      createBookmark(last, clock.wallTime()),
    ]);
    for await (const entryList of withBookmarks) {
      const entry = entryList.at(-1);
      if (entry !== undefined && entry.sequence !== 0n)
        last = { containerId: entry.containerId, replicaId: entry.replicaId };
      yield* entryList;
    }
  }

  /**
   * Opens the source of the entries. The source yields lists of entries, because passing single
   * entries through several generators costs as much as reading a line.
   */
  private async openLogEntries(
    request: StreamLogsRequest,
    signal: AbortSignal,
  ): Promise<AsyncIterable<readonly LogEntry[]>> {
    const logRequest = toLogRequest(request);
    const after = new Map(
      request.after.map(({ containerId, sequence }) => [containerId, sequence]),
    );
    const { maxBatchBytes, previous } = request;
    const conflict = previous ? findPreviousConflict(request) : undefined;
    if (conflict !== undefined)
      throw new InvalidInputError([
        { field: 'previous', message: `cannot be combined with ${conflict}` },
      ]);
    if (request.containerId !== '') {
      const { status, owner } = await this.lookup.requireContainer(request.containerId);
      const from = resumeAfter(logRequest, after.get(status.containerId));
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
      request.replicaId === '' ? await this.lookup.requireReplicaIds(request) : [request.replicaId];
    const isSorted = replicaIds.length > 1 && !logRequest.follow;
    const batchBytes = isSorted ? 0 : maxBatchBytes;
    const sources = previous
      ? this.requirePreviousContainers(replicaIds).map(({ containerId, replicaId }) =>
          this.readContainerEntries(containerId, replicaId, logRequest, batchBytes, signal),
        )
      : replicaIds.map((replicaId) =>
          this.readReplicaEntries(replicaId, logRequest, after, batchBytes, signal),
        );
    const [only] = sources;
    if (sources.length === 1 && only !== undefined) return only;
    return isSorted
      ? wrapEach(mergeSorted(sources.map(flattenLists), compareTime))
      : mergeByArrival(sources);
  }

  /**
   * Returns the earlier container of each replica that has one: the kept container that was
   * replaced last.
   * @throws kind `notFound` when there is none.
   */
  private requirePreviousContainers(
    replicaIds: readonly string[],
  ): readonly { readonly containerId: ContainerId; readonly replicaId: string }[] {
    const containers = replicaIds.flatMap((replicaId) => {
      const state = this.options.replicas.find(replicaId)?.current;
      const containerId = state?.ended.findLast((id) => id !== state.container?.id);
      return containerId === undefined ? [] : [{ containerId, replicaId }];
    });
    if (containers.length > 0) return containers;
    throw new CloudlessError(
      'notFound',
      'no replica has an earlier container: none was restarted in place, or the logs are no longer kept',
    );
  }

  private async *readContainerEntries(
    containerId: ContainerStatus['containerId'],
    replicaId: string,
    logRequest: LogRequest,
    maxBatchBytes: number,
    signal: AbortSignal,
  ): AsyncGenerator<readonly LogEntry[]> {
    const { runtime, clock } = this.options;
    for await (const batch of runtime.logBatches(containerId, logRequest, signal))
      yield toLogEntries(batch, { containerId, replicaId }, maxBatchBytes, clock.wallTime());
  }

  private async *readReplicaEntries(
    replicaId: string,
    logRequest: LogRequest,
    after: ReadonlyMap<string, bigint>,
    maxBatchBytes: number,
    signal: AbortSignal,
  ): AsyncGenerator<readonly LogEntry[]> {
    const { runtime, replicas, nodeId, clock } = this.options;
    if (replicas.find(replicaId) === undefined)
      throw new CloudlessError(
        'REPLICA_NOT_FOUND',
        `replica "${replicaId}" is not on node ${nodeId}`,
      );
    const sources = { runtime, replicas };
    for await (const { containerId, batch, position } of followReplica(
      replicaId,
      logRequest,
      after,
      sources,
      signal,
    )) {
      const owner = { containerId, replicaId };
      if (batch === undefined) yield [createPosition(owner, position, clock.wallTime())];
      else yield toLogEntries(batch, owner, maxBatchBytes, clock.wallTime());
    }
  }
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
