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

/** Bytes, over all replicas, that wait for the reader of a merged stream. */
const MAX_WAITING_BYTES = 256 * 1024;

/** Streams the logs of all replicas of a workload. */
export class WorkloadLogStream {
  constructor(
    private readonly deps: Pick<ApiServerDeps, 'state' | 'clock' | 'log'>,
    private readonly replicaLogs: ReplicaLogStream,
  ) {}

  /**
   * Streams the logs of all replicas of a workload: a single replica in batches, several replicas
   * merged by time, one line at a time.
   */
  async *merge(
    uid: string,
    request: StreamLogsRequest,
    reader: LogReader,
  ): AsyncGenerator<LogEntry> {
    const replicas = [...this.deps.state.view().replicasOf(uid)]
      .map(({ value }) => value)
      .filter(hasLogs);
    const [only] = replicas;
    if (only !== undefined && replicas.length === 1) {
      yield* this.replicaLogs.read({ kind: 'replica', replica: only }, request, reader);
      return;
    }
    const streams = replicas.map((replica) =>
      splitLines(this.replicaLogs.read({ kind: 'replica', replica }, request, reader)),
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
  async *follow(
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
        for await (const entry of this.replicaLogs.read(
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
