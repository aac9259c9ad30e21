import { create, type MessageInitShape } from '@bufbuild/protobuf';
import { Code, ConnectError, type HandlerContext } from '@connectrpc/connect';
import {
  ExecCommandRequestSchema,
  ExecCommandResponseSchema,
  GetContainerStatusRequestSchema,
  LogEntrySchema,
  ReplicaStatus_Phase as Phase,
  StreamLogsRequestSchema,
  TunnelFrameSchema,
  type OpenTunnel,
  type TunnelFrame,
} from '@cloudless/api';
import { ReplicaRecordSchema, WorkloadRecordSchema } from '@cloudless/api/store';
import { createSeededRandom, silentLog } from '@cloudless/base';
import { ManualClock } from '@cloudless/base/testing';
import type { ClusterState } from '@cloudless/cluster-state';
import type { TunnelListener } from '../session/tunnel-requester.js';
import type { AuditEntry } from '../audit/audit-log.js';
import { NodeLogReader } from './node-log-reader.js';
import { StreamHandlers } from './stream-handlers.js';
import { TunnelHub, type TunnelOpener } from './tunnel-hub.js';

const uid = '0123456789abcdef';
const aLine = (containerId: string, sequence: number): TunnelFrame =>
  create(TunnelFrameSchema, {
    frame: {
      case: 'log',
      value: create(LogEntrySchema, {
        containerId,
        sequence: BigInt(sequence),
        line: `${containerId} ${sequence}`,
      }),
    },
  });

/**
 * Replicas of one workload, each on a node of its own.
 * @param earlier - Ids of the earlier containers of each replica.
 */
function createState(count: number, earlier: readonly (readonly string[])[] = []): ClusterState {
  const replicas = Array.from({ length: count }, (_, index) => index + 1).map((number) => ({
    value: create(ReplicaRecordSchema, {
      id: `r-${number}`,
      uid,
      nodeId: `node-${number}`,
      containerId: `c${number}`,
      earlierContainerIds: [...(earlier[number - 1] ?? [])],
      desiredRunning: true,
      phase: Phase.RUNNING,
    }),
    revision: 1n,
  }));
  const workload = {
    value: create(WorkloadRecordSchema, { uid, namespace: 'default', name: 'web' }),
    revision: 1n,
  };
  const view = {
    workload: () => workload,
    workloadByName: () => workload,
    replicasOf: () => replicas,
    replica: (id: string) => replicas.find(({ value }) => value.id === id),
    replicas: () => replicas.map(({ value }) => ({ value })),
  };
  return { view: () => view, subscribe: () => () => undefined } as unknown as ClusterState;
}

function createDeps(clock: ManualClock, replicas = 2) {
  const deps = {
    state: createState(replicas),
    clock,
    log: silentLog,
    getConnection: () => undefined,
  };
  return deps;
}

/** Handlers whose agents support only protocol 1, without log channels. */
const createHandlers = (clock: ManualClock, tunnels: TunnelOpener, replicas = 2): StreamHandlers =>
  new StreamHandlers(createDeps(clock, replicas), tunnels, new NodeLogReader(tunnels, () => false));
const createContext = (signal: AbortSignal) => ({ signal }) as HandlerContext;

describe('StreamHandlers.streamLogs', () => {
  it('delivers every line of every replica of a workload to a slow reader', async () => {
    const clock = new ManualClock();
    const stopping = new AbortController();
    const tunnels: TunnelOpener = {
      async *open(nodeId, _target, signal) {
        for (let sequence = 1; sequence <= 700; sequence += 1) yield aLine(nodeId, sequence);
        await new Promise<void>((resolve) => signal.addEventListener('abort', () => resolve()));
      },
    };
    const streams = createHandlers(clock, tunnels);
    const request = create(StreamLogsRequestSchema, { name: 'web', follow: true });
    const counts = new Map<string, number>();
    const reading = (async () => {
      for await (const { containerId } of streams.streamLogs(
        request,
        createContext(stopping.signal),
      )) {
        counts.set(containerId, (counts.get(containerId) ?? 0) + 1);
        for (let turn = 0; turn < 3; turn += 1) await Promise.resolve();
      }
    })();
    for (let turn = 0; turn < 200; turn += 1) await clock.advance(1);
    stopping.abort();
    await clock.advance(1);
    await reading;
    expect(Object.fromEntries(counts)).toEqual({ 'node-1': 700, 'node-2': 700 });
  });

  it('delivers the batches of a workload with one replica as its agent sent them', async () => {
    const batch = Uint8Array.of(10, 0, 10, 0); // Two lines without fields.
    const value = create(LogEntrySchema, { containerId: 'c1', batch });
    const tunnels: TunnelOpener = {
      async *open() {
        yield create(TunnelFrameSchema, { frame: { case: 'log', value } });
      },
    };
    const streams = createHandlers(new ManualClock(), tunnels, 1);
    const request = create(StreamLogsRequestSchema, { name: 'web', maxBatchBytes: 1_000 });
    const entries = [];
    for await (const entry of streams.streamLogs(
      request,
      createContext(new AbortController().signal),
    ))
      entries.push(entry);
    expect(entries).toEqual([value]);
  });
});

describe('StreamHandlers.streamLogs with previous', () => {
  /** Reads the lines of the earlier containers; the agents answer with the id of the container. */
  async function readPrevious(
    earlier: readonly (readonly string[])[],
    fields: MessageInitShape<typeof StreamLogsRequestSchema> = { name: 'web' },
  ): Promise<readonly string[]> {
    const tunnels: TunnelOpener = {
      async *open(nodeId, target) {
        if (target.case !== 'logs') throw new Error(`unexpected target ${target.case ?? ''}`);
        expect(target.value).toMatchObject({ previous: false, replicaId: '' });
        yield aLine(`${nodeId}/${target.value.containerId}`, 1);
      },
    };
    const deps = { ...createDeps(new ManualClock()), state: createState(3, earlier) };
    const streams = new StreamHandlers(deps, tunnels, new NodeLogReader(tunnels, () => false));
    const request = create(StreamLogsRequestSchema, { ...fields, previous: true });
    const lines: string[] = [];
    const context = createContext(new AbortController().signal);
    for await (const { line } of streams.streamLogs(request, context)) lines.push(line);
    return lines;
  }

  it('reads the container before the present one of each replica that was restarted', async () => {
    expect(await readPrevious([['x1', 'x2'], [], ['y1', 'c3']])).toEqual([
      'node-1/x2 1',
      'node-3/y1 1',
    ]);
    expect(await readPrevious([[], ['z1']], { replicaId: 'r-2' })).toEqual(['node-2/z1 1']);
  });

  it.each([
    {
      name: 'a workload without a restarted replica',
      fields: { name: 'web' },
      message: 'no replica of workload "default/web" has an earlier container',
    },
    {
      name: 'a replica that was not restarted',
      fields: { replicaId: 'r-1' },
      message: 'replica "r-1" has no earlier container',
    },
    {
      name: 'a followed log',
      fields: { name: 'web', follow: true },
      message: 'previous: cannot be combined with follow',
    },
    {
      name: 'a container id',
      fields: { containerId: 'c1' },
      message: 'previous: cannot be combined with container_id',
    },
    {
      name: 'positions after which a stream resumes',
      fields: { name: 'web', after: [{ containerId: 'a'.repeat(64), sequence: 1n }] },
      message: 'previous: cannot be combined with after',
    },
    {
      name: 'a sequence number after which a stream resumes',
      fields: { replicaId: 'r-2', afterSequence: 1n },
      message: 'previous: cannot be combined with after_sequence',
    },
  ])('refuses $name', async ({ fields, message }) => {
    await expect(readPrevious([], fields)).rejects.toThrow(message);
  });
});

describe('StreamHandlers.execCommand', () => {
  const createPart = (stdout: string, more: object = {}) =>
    create(ExecCommandResponseSchema, { stdout, ...more });
  const end = { exitCode: 3, containerId: 'c1', replicaId: 'r-1', truncated: true };

  it.each([
    {
      name: 'several frames',
      frames: [createPart('one '), createPart('two '), createPart('three', end)],
      stdout: 'one two three',
    },
    {
      name: 'one frame from an agent of an earlier version',
      frames: [createPart('one', end)],
      stdout: 'one',
    },
  ])('returns the complete result from $name', async ({ frames, stdout }) => {
    const tunnels: TunnelOpener = {
      async *open() {
        for (const [index, value] of frames.entries()) {
          const isLast = index === frames.length - 1;
          yield create(TunnelFrameSchema, {
            frame: { case: isLast ? 'exec' : 'execPiece', value },
          });
        }
      },
    };
    const entry = { recordStart: () => Promise.resolve() } as unknown as AuditEntry;
    const streams = new StreamHandlers(
      createDeps(new ManualClock()),
      tunnels,
      new NodeLogReader(tunnels, () => false),
    );
    const request = create(ExecCommandRequestSchema, { name: 'web', command: ['x'] });
    const result = await streams.execCommand(
      request,
      entry,
      createContext(new AbortController().signal),
    );
    expect(result).toMatchObject({ ...end, stdout });
  });
});

describe('TunnelHub', () => {
  const target = { case: 'logs', value: create(StreamLogsRequestSchema, {}) } as const;

  it.each([
    {
      target: { case: 'exec', value: create(ExecCommandRequestSchema, {}) } as const,
      inPieces: true,
    },
    {
      target: { case: 'logs', value: create(StreamLogsRequestSchema, {}) } as const,
      inPieces: false,
    },
  ])('sets exec_in_pieces to $inPieces for $target.case', async ({ target, inPieces }) => {
    const requests: OpenTunnel[] = [];
    const hub = new TunnelHub(
      { clock: new ManualClock(), random: createSeededRandom(1) },
      {
        setTunnelListener: () => undefined,
        requestTunnel: (_nodeId: string, request: OpenTunnel) => requests.push(request) > 0,
        withdrawTunnel: () => undefined,
      },
    );
    const outcome = hub.open('node-1', target, new AbortController().signal).next();
    hub.close();
    await expect(outcome).rejects.toThrow('shutting down');
    expect(requests.map(({ execInPieces }) => execInPieces)).toEqual([inPieces]);
  });

  it.each([
    {
      cause: Code.ResourceExhausted,
      kind: 'exhausted',
      says: 'has executed the call, but its response is too large',
    },
    {
      cause: Code.Canceled,
      kind: 'unavailable',
      says: 'the stream from node "node-1" was interrupted',
    },
  ])(
    'fails with kind $kind when a frame of the agent fails with code $cause',
    async ({ cause, kind, says }) => {
      const hub: TunnelHub = new TunnelHub(
        { clock: new ManualClock(), random: createSeededRandom(1) },
        {
          setTunnelListener: () => undefined,
          requestTunnel: (_nodeId: string, { tunnelId }: OpenTunnel) => {
            const frames = async function* (): AsyncGenerator<TunnelFrame> {
              yield create(TunnelFrameSchema, { frame: { case: 'tunnelId', value: tunnelId } });
              throw new ConnectError('the frame', cause);
            };
            void hub.handleTunnel(frames(), createContext(new AbortController().signal)).next();
            return true;
          },
          withdrawTunnel: () => undefined,
        },
      );
      const failed = hub.open('node-1', target, new AbortController().signal).next();
      await expect(failed).rejects.toMatchObject({ kind, message: expect.stringContaining(says) });
    },
  );

  /** Creates a hub whose agent opens each tunnel at once and then sends no frame. */
  function createSilentHub() {
    const clock = new ManualClock();
    let listener: TunnelListener | undefined;
    /** Results of the Tunnel calls of the agent. */
    const tunnelCalls: Promise<unknown>[] = [];
    const hub: TunnelHub = new TunnelHub(
      { clock, random: createSeededRandom(1) },
      {
        setTunnelListener: (newListener) => void (listener = newListener),
        requestTunnel: (_nodeId: string, { tunnelId }: OpenTunnel) => {
          tunnelCalls.push(
            hub
              .handleTunnel(streamNothing(tunnelId), createContext(new AbortController().signal))
              .next(),
          );
          return true;
        },
        withdrawTunnel: () => undefined,
      },
    );
    const loseNode = (nodeId: string): void => listener?.onNodeLost(nodeId);
    return { clock, hub, tunnelCalls, loseNode };
  }

  async function* streamNothing(tunnelId: string): AsyncGenerator<TunnelFrame> {
    yield create(TunnelFrameSchema, { frame: { case: 'tunnelId', value: tunnelId } });
    await new Promise<void>(() => undefined);
  }

  it.each([
    {
      name: 'the client disconnects',
      end: (caller: AbortController) => caller.abort(),
      says: 'the client has disconnected',
    },
    {
      name: 'the node is lost',
      end: (_: AbortController, loseNode: () => void) => loseNode(),
      says: 'node "node-1" is not connected',
    },
  ])(
    'ends a tunnel on both sides when $name while the agent sends no frame',
    async ({ end, says }) => {
      const { clock, hub, tunnelCalls, loseNode } = createSilentHub();
      const caller = new AbortController();
      const reading = hub.open('node-1', target, caller.signal).next();
      const outcome = reading.catch((reason: Error) => reason.message);
      await clock.advance(20_000);
      end(caller, () => loseNode('node-1'));
      await clock.advance(0);
      expect(await outcome).toBe(says);
      expect(await tunnelCalls[0]).toMatchObject({ done: true });
    },
  );

  it('opens tunnels again after the clients of the earlier tunnels have disconnected', async () => {
    const { clock, hub } = createSilentHub();
    const target = { case: 'status', value: create(GetContainerStatusRequestSchema) } as const;
    for (let round = 0; round < 3; round += 1) {
      const callers = Array.from({ length: 32 }, () => new AbortController());
      const readings = callers.map((caller) =>
        hub
          .open('node-1', target, caller.signal)
          .next()
          .catch(() => undefined),
      );
      await clock.advance(10);
      await expect(hub.open('node-1', target, new AbortController().signal).next()).rejects.toThrow(
        '32 streams',
      );
      for (const caller of callers) caller.abort();
      await Promise.all(readings);
    }
  });

  it('fails a tunnel that the agent does not open within 10 s, and withdraws the request', async () => {
    const clock = new ManualClock();
    const withdrawn: string[] = [];
    const requests: OpenTunnel[] = [];
    const sessions = {
      setTunnelListener: () => undefined,
      requestTunnel: (_nodeId: string, request: OpenTunnel) => requests.push(request) > 0,
      withdrawTunnel: (_nodeId: string, tunnelId: string) => void withdrawn.push(tunnelId),
    };
    const hub = new TunnelHub({ clock, random: createSeededRandom(1) }, sessions);
    const outcome = hub.open('node-1', target, new AbortController().signal).next();
    const failed = expect(outcome).rejects.toThrow('node "node-1" did not answer within 10000 ms');
    await clock.advance(10_000);
    await failed;
    expect(requests[0]?.dialWithin?.seconds).toBe(10n);
    expect(withdrawn).toEqual([requests[0]?.tunnelId]);
    expect([hub.size, clock.pendingTimers]).toEqual([0, 0]);
  });

  it('ends the call of an agent that sends no first frame within 10 s', async () => {
    const { clock, hub } = createSilentHub();
    const noFrames = (async function* (): AsyncGenerator<TunnelFrame> {
      await new Promise<void>(() => undefined);
    })();
    const outcome = hub.handleTunnel(noFrames, createContext(new AbortController().signal)).next();
    const failed = expect(outcome).rejects.toMatchObject({ kind: 'deadline' });
    await clock.advance(10_000);
    await failed;
  });

  it('fails open tunnels when it is closed, and refuses new tunnels afterwards', async () => {
    const { clock, hub, tunnelCalls } = createSilentHub();
    const reading = expect(
      hub.open('node-1', target, new AbortController().signal).next(),
    ).rejects.toThrow('shutting down');
    await clock.advance(1);
    hub.close();
    await reading;
    await clock.advance(0);
    expect(await tunnelCalls[0]).toMatchObject({ done: true });
    expect(hub.size).toBe(0);
    await expect(hub.open('node-1', target, new AbortController().signal).next()).rejects.toThrow(
      'shutting down',
    );
  });

  it('closes a tunnel at once when the client disconnects while a frame waits for it', async () => {
    const clock = new ManualClock();
    const hub: TunnelHub = new TunnelHub(
      { clock, random: createSeededRandom(1) },
      {
        setTunnelListener: () => undefined,
        requestTunnel: (_nodeId: string, { tunnelId }: OpenTunnel) => {
          const frames = async function* (): AsyncGenerator<TunnelFrame> {
            yield create(TunnelFrameSchema, { frame: { case: 'tunnelId', value: tunnelId } });
            yield aLine('c1', 1);
          };
          void hub.handleTunnel(frames(), createContext(new AbortController().signal)).next();
          return true;
        },
        withdrawTunnel: () => undefined,
      },
    );
    const caller = new AbortController();
    await hub.open('node-1', target, caller.signal).next();
    expect(hub.size).toBe(1);
    caller.abort();
    expect(hub.size).toBe(0);
  });
});
