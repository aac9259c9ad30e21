import { clone, create } from '@bufbuild/protobuf';
import { timestampMs } from '@bufbuild/protobuf/wkt';
import {
  LogEntrySchema,
  StreamLogsRequestSchema,
  computeLogCost,
  decodeLines,
  type LogEntry,
  type StreamLogsRequest,
} from '@cloudless/api';
import type { ReplicaRecord } from '@cloudless/api/store';
import { errorFields, errorKindOf } from '@cloudless/base';
import type { ApiServerDeps } from '../ports.js';
import { ChangedKeys } from '../watch/wakeup.js';
import { isBookmark } from './log-cursor.js';
import type { LogReader, ReplicaLogStream } from './replica-log-stream.js';
import type { LogTarget } from './stream-target.js';
import { createUnreadableEntry } from './unreadable-log.js';

/** Bytes of all replicas together that wait for the reader of a followed workload. */
const MAX_WAITING_BYTES = 256 * 1024;

/** A log that cannot be read at all, or not to its end. */
interface LogFailure {
  readonly target: LogTarget;
  readonly reason: unknown;
}

/** Streams the logs of all replicas of a workload. */
export class WorkloadLogStream {
  constructor(
    private readonly deps: Pick<ApiServerDeps, 'state' | 'clock' | 'log'>,
    private readonly replicaLogs: ReplicaLogStream,
  ) {}

  /**
   * Streams the stored logs of all replicas of a workload. A single replica is streamed in the
   * batches of its agent; several replicas are merged by time, one line at a time. An entry with
   * `unreadable` at the end names each replica whose log cannot be read.
   * @throws the error of the first of these replicas when no log can be read; kind `exhausted` when
   *   the client or a node has too many open logs.
   */
  async *merge(
    uid: string,
    request: StreamLogsRequest,
    reader: LogReader,
  ): AsyncGenerator<LogEntry> {
    const targets = [...this.deps.state.view().replicasOf(uid)]
      .filter(({ value }) => hasLogs(value))
      .map(({ value }) => ({ kind: 'replica', replica: value }) as const);
    yield* this.mergeTargets(targets, request, reader);
  }

  /**
   * Streams the stored logs of several replicas or containers. The log of a single target is
   * streamed in the batches of its agent; several logs are merged by time, one line at a time. An
   * entry with `unreadable` at the end names each log that cannot be read.
   * @throws the error of the first of these logs when no log can be read; kind `exhausted` when the
   *   client or a node has too many open logs.
   */
  async *mergeTargets(
    targets: readonly LogTarget[],
    request: StreamLogsRequest,
    reader: LogReader,
  ): AsyncGenerator<LogEntry> {
    const [first] = targets;
    if (first !== undefined && targets.length === 1) {
      yield* this.replicaLogs.read(first, request, reader);
      return;
    }
    const failures: LogFailure[] = [];
    const streams = targets.map((target) =>
      splitLines(this.readAvailable(target, request, reader, failures)),
    );
    try {
      const heads = await Promise.all(streams.map((stream) => stream.next()));
      for (;;) {
        const index = findEarliest(heads);
        if (index < 0) break;
        const head = heads[index];
        const stream = streams[index];
        if (head === undefined || stream === undefined || head.done === true) return;
        yield head.value;
        heads[index] = await stream.next();
      }
    } finally {
      await Promise.allSettled(streams.map((stream) => stream.return(undefined)));
    }
    const [firstFailure] = failures;
    if (firstFailure !== undefined && failures.length === targets.length) throw firstFailure.reason;
    for (const { target, reason } of failures)
      yield createUnreadableEntry(target, reason, /* retried */ false);
  }

  /**
   * Streams a stored log up to its end or its failure.
   * @param failures - Receives the failure.
   */
  private async *readAvailable(
    target: LogTarget,
    request: StreamLogsRequest,
    reader: LogReader,
    failures: LogFailure[],
  ): AsyncGenerator<LogEntry> {
    try {
      yield* this.replicaLogs.read(target, request, reader);
    } catch (reason) {
      // The client can close other logs when a limit is reached.
      if (reader.signal.aborted || errorKindOf(reason) === 'exhausted') throw reason;
      failures.push({ target, reason });
    }
  }

  /**
   * Follows the logs of all replicas of a workload, including replicas that are created later, in
   * the order in which lines arrive. Yields an empty entry after 15 s of silence, and an entry with
   * `unreadable` for a log that cannot be read. Ends when the workload is deleted and its last lines
   * were sent.
   * @throws kind `exhausted` when the client or a node has too many open logs. Other errors end
   *   only the log of their replica.
   */
  async *follow(
    uid: string,
    request: StreamLogsRequest,
    { signal, client }: LogReader,
  ): AsyncGenerator<LogEntry> {
    const { state, clock, log } = this.deps;
    /** `lines` when lines were read, `replicas` when the replicas to follow may have changed. */
    const changedKeys = new ChangedKeys();
    const lines: LogEntry[] = [];
    let waitingBytes = 0;
    /** Ids of the replicas whose logs are or were followed. */
    const attached = new Set<string>();
    const failures: unknown[] = [];
    /** Number of replica logs that are being read. */
    let openLogs = 0;
    const stopping = new AbortController();
    const stop = (): void => stopping.abort();
    signal.addEventListener('abort', stop, { once: true });
    /** Readers that wait because {@link MAX_WAITING_BYTES} is reached. */
    const pausedReaders = new Set<() => void>();
    const resumeReaders = (): void => {
      for (const resume of pausedReaders) resume();
      pausedReaders.clear();
    };
    const addEntry = (entry: LogEntry): void => {
      lines.push(entry);
      waitingBytes += computeLogCost(entry);
      changedKeys.mark('lines');
    };
    const readLog = async (replica: ReplicaRecord, isInitial: boolean): Promise<void> => {
      const replicaRequest = clone(StreamLogsRequestSchema, request);
      // All lines of a replica that is created later are new.
      if (!isInitial) delete replicaRequest.tailLines;
      try {
        const reader = { signal: stopping.signal, client };
        for await (const entry of this.replicaLogs.read(
          { kind: 'replica', replica },
          replicaRequest,
          reader,
        )) {
          if (isBookmark(entry)) continue;
          while (waitingBytes >= MAX_WAITING_BYTES && !stopping.signal.aborted)
            await new Promise<void>((resolve) => pausedReaders.add(resolve));
          addEntry(entry);
        }
      } catch (reason) {
        if (stopping.signal.aborted) return;
        log.debug('log stream of a replica ended', {
          replicaId: replica.id,
          ...errorFields(reason),
        });
        // The stream goes on without a replica whose log cannot be read. Only a reached limit ends
        // the stream, because the client can close other logs.
        if (errorKindOf(reason) === 'exhausted') failures.push(reason);
        else if (state.view().replica(replica.id) !== undefined)
          addEntry(createUnreadableEntry({ kind: 'replica', replica }, reason, false));
      } finally {
        openLogs -= 1;
        changedKeys.mark('replicas');
      }
    };
    /** Starts to follow the replicas that are not followed yet. */
    const attachReplicas = (isInitial: boolean): void => {
      for (const { value } of state.view().replicasOf(uid)) {
        if (attached.has(value.id) || !hasLogs(value)) continue;
        attached.add(value.id);
        openLogs += 1;
        void readLog(value, isInitial);
      }
    };
    const unsubscribe = state.subscribe((changes) => {
      const isAffected = changes.some(
        ({ kind, id, before, after }) =>
          (kind === 'workload' && id === uid) ||
          (kind === 'replica' && ((after ?? before) as ReplicaRecord).uid === uid),
      );
      if (isAffected) changedKeys.mark('replicas');
    });
    try {
      attachReplicas(/* isInitial */ true);
      for (
        let keys = await changedKeys.next(clock, signal);
        keys !== undefined;
        keys = await changedKeys.next(clock, signal)
      ) {
        if (keys.length === 0) yield create(LogEntrySchema);
        attachReplicas(/* isInitial */ false);
        for (let entry = lines.shift(); entry !== undefined; entry = lines.shift()) {
          waitingBytes -= computeLogCost(entry);
          yield entry;
          if (waitingBytes < MAX_WAITING_BYTES) resumeReaders();
        }
        if (failures.length > 0) throw failures[0];
        // Ends only after the remaining lines of the last replicas.
        if (state.view().workload(uid) === undefined && openLogs === 0 && lines.length === 0)
          return;
      }
    } finally {
      unsubscribe();
      signal.removeEventListener('abort', stop);
      stopping.abort();
      resumeReaders();
    }
  }
}

async function* splitLines(entries: AsyncIterable<LogEntry>): AsyncGenerator<LogEntry> {
  for await (const entry of entries) yield* decodeLines(entry);
}

function hasLogs(replica: ReplicaRecord): boolean {
  return replica.nodeId !== '' && replica.containerId !== '' && !replica.lost;
}

/**
 * Returns the index of the stream whose next line is the oldest; -1 when all streams have ended. A
 * line without a time counts as the oldest.
 */
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
