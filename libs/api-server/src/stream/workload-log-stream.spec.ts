import { create, type MessageInitShape } from '@bufbuild/protobuf';
import { timestampFromMs } from '@bufbuild/protobuf/wkt';
import { Code } from '@connectrpc/connect';
import { LogEntrySchema, StreamLogsRequestSchema, type LogEntry } from '@cloudless/api';
import { ReplicaRecordSchema } from '@cloudless/api/store';
import { CloudlessError, silentLog } from '@cloudless/base';
import { ManualClock } from '@cloudless/base/testing';
import type { ClusterState } from '@cloudless/cluster-state';
import type { NodeLogReader } from './node-log-reader.js';
import { ReplicaLogStream } from './replica-log-stream.js';
import { WorkloadLogStream } from './workload-log-stream.js';

const uid = '0123456789abcdef';
type ReadLog = (nodeId: string, signal: AbortSignal) => AsyncGenerator<LogEntry>;

/** A workload whose replicas `r-1`, `r-2`, … are on the nodes `node-1`, `node-2`, … */
function createBed(replicaCount: number, read: ReadLog) {
  const clock = new ManualClock();
  const replicas = new Map(
    Array.from({ length: replicaCount }, (_, index) => {
      const number = index + 1;
      const value = create(ReplicaRecordSchema, {
        id: `r-${number}`,
        uid,
        nodeId: `node-${number}`,
        containerId: `c${number}`,
      });
      return [value.id, { value, revision: 1n }] as const;
    }),
  );
  const view = {
    workload: () => ({}),
    replicasOf: () => [...replicas.values()],
    replica: (id: string) => replicas.get(id),
  };
  const state = { view: () => view, subscribe: () => () => undefined };
  const deps = { state: state as unknown as ClusterState, clock, log: silentLog };
  const logs = { read: (nodeId, _request, signal) => read(nodeId, signal as AbortSignal) } as Pick<
    NodeLogReader,
    'read'
  >;
  const stopping = new AbortController();
  const streams = new WorkloadLogStream(deps, new ReplicaLogStream(deps, logs));
  const reader = { signal: stopping.signal, client: undefined };
  const request = (fields: MessageInitShape<typeof StreamLogsRequestSchema> = {}) =>
    create(StreamLogsRequestSchema, fields);
  /** Reads the stored logs, as short texts. */
  const merge = async (): Promise<readonly string[]> => {
    const texts: string[] = [];
    for await (const entry of streams.merge(uid, request(), reader)) texts.push(toText(entry));
    return texts;
  };
  /** Follows the logs until `stopping`; the texts grow. */
  const follow = () => {
    const texts: string[] = [];
    const ended = (async () => {
      const entries = streams.follow(uid, request({ follow: true }), reader);
      for await (const entry of entries) texts.push(toText(entry));
    })();
    return { texts, ended };
  };
  return { clock, replicas, stopping, merge, follow };
}

function toText({ replicaId, line, unreadable }: LogEntry): string {
  if (unreadable === undefined) return line;
  const { nodeId, code, message, retried } = unreadable;
  return `${replicaId} on ${nodeId}: ${Code[code] ?? ''} ${message}${retried ? ', retried' : ''}`;
}

const aLine = (nodeId: string, second: number): LogEntry =>
  create(LogEntrySchema, {
    containerId: nodeId,
    sequence: BigInt(second),
    line: `${nodeId} ${second}`,
    time: timestampFromMs(second * 1_000),
  });

const away = (nodeId: string) =>
  new CloudlessError('NODE_UNREACHABLE', `node "${nodeId}" is not connected`);
const gone = (nodeId: string) =>
  new CloudlessError('REPLICA_NOT_FOUND', `the replica is not on node ${nodeId}`);

describe('WorkloadLogStream.merge', () => {
  it('streams the readable logs, and then names the logs that fail', async () => {
    let open = 0;
    const bed = createBed(4, async function* (nodeId) {
      if (nodeId === 'node-2') throw away(nodeId);
      if (nodeId === 'node-3') throw gone(nodeId);
      open += 1;
      try {
        yield aLine(nodeId, 1);
        if (nodeId === 'node-4') throw new Error('a detail that stays on the server');
        yield aLine(nodeId, 2);
      } finally {
        open -= 1;
      }
    });
    expect(await bed.merge()).toEqual([
      'node-1 1',
      'node-4 1',
      'node-1 2',
      'r-2 on node-2: Unavailable node "node-2" is not connected',
      'r-3 on node-3: NotFound the replica is not on node node-3',
      'r-4 on node-4: Internal internal error',
    ]);
    expect(open).toBe(0);
  });

  it.each([
    { name: 'no log can be read', replicas: 3, fail: gone, kind: 'notFound' },
    { name: 'the only log cannot be read', replicas: 1, fail: away, kind: 'unavailable' },
  ])('fails when $name', async ({ replicas, fail, kind }) => {
    const bed = createBed(replicas, async function* (nodeId) {
      throw fail(nodeId);
    });
    await expect(bed.merge()).rejects.toMatchObject({
      kind,
      message: expect.stringContaining('node-1'),
    });
  });

  it('fails, and closes the other logs, when a limit of open logs is reached', async () => {
    let open = 0;
    const bed = createBed(2, async function* (nodeId) {
      if (nodeId === 'node-2') throw new CloudlessError('exhausted', 'too many open logs');
      open += 1;
      try {
        yield aLine(nodeId, 1);
      } finally {
        open -= 1;
      }
    });
    await expect(bed.merge()).rejects.toMatchObject({ kind: 'exhausted' });
    expect(open).toBe(0);
  });
});

describe('WorkloadLogStream.follow', () => {
  const untilStopped = (signal: AbortSignal) =>
    new Promise<void>((resolve) => signal.addEventListener('abort', () => resolve()));

  it('names a log that cannot be read at once, and goes on with the others', async () => {
    const bed = createBed(2, async function* (nodeId, signal) {
      if (nodeId === 'node-2') throw gone(nodeId);
      yield aLine(nodeId, 1);
      await untilStopped(signal);
    });
    const { texts, ended } = bed.follow();
    await bed.clock.advance(1_000);
    bed.stopping.abort();
    await ended;
    expect([...texts].sort()).toEqual([
      'node-1 1',
      'r-2 on node-2: NotFound the replica is not on node node-2',
    ]);
  });

  it('says nothing about the end of the log of a replica that was removed', async () => {
    const bed = createBed(1, async function* (nodeId) {
      bed.replicas.clear();
      throw gone(nodeId);
    });
    const { texts, ended } = bed.follow();
    await bed.clock.advance(1_000);
    bed.stopping.abort();
    await ended;
    expect(texts).toEqual([]);
  });

  it('names a node that is away for 5 s once, and goes on with its log on return', async () => {
    let isAway = true;
    const bed = createBed(1, async function* (nodeId, signal) {
      if (isAway) throw away(nodeId);
      yield aLine(nodeId, 1);
      await untilStopped(signal);
    });
    const { texts, ended } = bed.follow();
    await bed.clock.advance(4_500);
    expect(texts).toEqual([]);
    await bed.clock.advance(6_000);
    const notice = 'r-1 on node-1: Unavailable node "node-1" is not connected, retried';
    expect(texts).toEqual([notice]);
    isAway = false;
    await bed.clock.advance(1_000);
    expect(texts).toEqual([notice, 'node-1 1']);
    bed.stopping.abort();
    await ended;
  });
});
