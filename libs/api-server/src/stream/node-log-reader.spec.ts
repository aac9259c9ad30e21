import { create } from '@bufbuild/protobuf';
import {
  LogChannelFramesSchema,
  LogEntrySchema,
  StreamLogsRequestSchema,
  TunnelErrorSchema,
  TunnelFrameSchema,
  computeLogCost,
  type LogChannelFrame,
  type LogEntry,
  type TunnelFrame,
} from '@cloudless/api';
import { CloudlessError, createSeededRandom } from '@cloudless/base';
import { ManualClock, settle } from '@cloudless/base/testing';
import { NodeLogReader } from './node-log-reader.js';
import { TunnelHub, type TunnelPurpose, type TunnelOpener } from './tunnel-hub.js';

const anEntry = (sequence: number): LogEntry =>
  create(LogEntrySchema, {
    containerId: 'c1',
    sequence: BigInt(sequence),
    line: 'x'.repeat(1_000),
  });
const request = (replicaId = 'web-1') =>
  create(StreamLogsRequestSchema, { replicaId, follow: true });

/** A stream of frames that a test pushes. */
class PushedFrames {
  private readonly waiting: TunnelFrame[] = [];
  private failure: Error | undefined;
  private wake = (): void => undefined;

  push(frame: TunnelFrame): void {
    this.waiting.push(frame);
    this.wake();
  }

  fail(reason: Error): void {
    this.failure = reason;
    this.wake();
  }

  async *read(signal: AbortSignal): AsyncGenerator<TunnelFrame> {
    signal.addEventListener('abort', () => this.wake(), { once: true });
    while (!signal.aborted) {
      const frame = this.waiting.shift();
      if (frame !== undefined) yield frame;
      else if (this.failure !== undefined) throw this.failure;
      else await new Promise<void>((resolve) => (this.wake = resolve));
    }
  }
}

/** Tunnels whose frames from the agent a test sends. */
class ScriptedTunnels implements TunnelOpener {
  readonly targets: TunnelPurpose[] = [];
  /** Frames that the coordinator sent through log channels. */
  readonly received: LogChannelFrame[] = [];
  /** Number of open tunnels. */
  openCount = 0;
  /** Frames of the newest tunnel. */
  private current: PushedFrames | undefined;

  async *open(
    _nodeId: string,
    target: TunnelPurpose,
    signal: AbortSignal,
    input?: AsyncIterable<TunnelFrame>,
  ): AsyncGenerator<TunnelFrame> {
    this.targets.push(target);
    const frames = new PushedFrames();
    this.current = frames;
    this.openCount += 1;
    if (input !== undefined) void this.recordFrames(input);
    try {
      yield* frames.read(signal);
    } finally {
      this.openCount -= 1;
    }
  }

  sendFrame(logId: bigint, frame: LogChannelFrame['frame']): void {
    const value = create(LogChannelFramesSchema, { frames: [{ logId, frame }] });
    this.current?.push(create(TunnelFrameSchema, { frame: { case: 'logChannel', value } }));
  }

  breakTunnel(): void {
    this.current?.fail(
      new CloudlessError('unavailable', 'the stream from node "node-1" was interrupted'),
    );
  }

  /** Returns the sum of the bytes that window frames granted to a log. */
  getGrantedBytes(logId: bigint): number {
    return this.received.reduce(
      (sum, { logId: id, frame }) =>
        sum + (id === logId && frame.case === 'window' ? Number(frame.value) : 0),
      0,
    );
  }

  private async recordFrames(input: AsyncIterable<TunnelFrame>): Promise<void> {
    for await (const { frame } of input)
      if (frame.case === 'logChannel') this.received.push(...frame.value.frames);
  }
}

function createWorld(supportsLogChannel = true) {
  const tunnels = new ScriptedTunnels();
  const streams = new NodeLogReader(tunnels, () => supportsLogChannel);
  const stop = new AbortController();
  const read = (client: object = stop) => streams.read('node-1', request(), stop.signal, client);
  return { tunnels, streams, stop, read };
}

describe('NodeLogReader', () => {
  it('reads all logs of a node through one tunnel, which ends with the last log', async () => {
    const { tunnels, read } = createWorld();
    const readers = [read(), read()];
    const first = readers.map((reader) => reader.next());
    await settle();
    expect(tunnels.targets.map((target) => target.case)).toEqual(['logChannel']);
    tunnels.sendFrame(2n, { case: 'entry', value: anEntry(7) });
    tunnels.sendFrame(1n, { case: 'entry', value: anEntry(3) });
    expect((await Promise.all(first)).map(({ value }) => (value as LogEntry).sequence)).toEqual([
      3n,
      7n,
    ]);
    await readers[0]!.return(undefined);
    await settle();
    expect(tunnels.received.at(-1)).toMatchObject({ logId: 1n, frame: { case: 'close' } });
    expect(tunnels.openCount).toBe(1);
    await readers[1]!.return(undefined);
    await settle();
    expect(tunnels.openCount).toBe(0);
    const later = read();
    void later.next().catch(() => undefined);
    await settle();
    expect(tunnels.targets).toHaveLength(2);
  });

  it('passes the end and the error of one log on while other logs go on', async () => {
    const { tunnels, read } = createWorld();
    const [ending, failing, other] = [read(), read(), read()];
    const outcomes = [
      ending.next(),
      failing.next().catch((reason: unknown) => reason),
      other.next(),
    ];
    await settle();
    tunnels.sendFrame(1n, { case: 'end', value: { $typeName: 'cloudless.api.TunnelEnd' } });
    tunnels.sendFrame(2n, {
      case: 'error',
      value: create(TunnelErrorSchema, { code: 5, message: 'replica "web-1" is not here' }),
    });
    tunnels.sendFrame(3n, { case: 'entry', value: anEntry(1) });
    expect(await Promise.all(outcomes)).toMatchObject([
      { done: true },
      { kind: 'notFound', message: 'replica "web-1" is not here' },
      { done: false },
    ]);
  });

  it('extends the window of a log only as its entries are read, so that a slow reader delays no other log', async () => {
    const { tunnels, read } = createWorld();
    const [slow, quick] = [read(), read()];
    const first = [slow.next(), quick.next()];
    await settle();
    const windows = [tunnels.getGrantedBytes(1n), tunnels.getGrantedBytes(2n)];
    for (const logId of [1n, 2n])
      for (let line = 1; line <= 100; line += 1)
        tunnels.sendFrame(logId, { case: 'entry', value: anEntry(line) });
    await Promise.all(first);
    for (let line = 2; line <= 100; line += 1) await quick.next();
    await settle();
    expect(tunnels.getGrantedBytes(1n)).toBe(windows[0]);
    expect(tunnels.getGrantedBytes(2n)).toBeGreaterThan(
      windows[1]! + 60 * computeLogCost(anEntry(1)),
    );
  });

  it('fails all logs when the tunnel breaks, and opens another tunnel for later logs', async () => {
    const { tunnels, read } = createWorld();
    const broken = [read(), read()].map((reader) =>
      reader.next().catch((reason: unknown) => reason),
    );
    await settle();
    tunnels.breakTunnel();
    expect(await Promise.all(broken)).toMatchObject([
      { kind: 'unavailable' },
      { kind: 'unavailable' },
    ]);
    const again = read().next();
    await settle();
    tunnels.sendFrame(1n, { case: 'entry', value: anEntry(1) });
    expect(await again).toMatchObject({ done: false });
  });

  it('closes a log at once when its client disconnects while an entry waits', async () => {
    const { tunnels, read, stop } = createWorld();
    const reader = read();
    const first = reader.next();
    await settle();
    tunnels.sendFrame(1n, { case: 'entry', value: anEntry(1) });
    await first;
    stop.abort();
    await settle();
    expect(tunnels.openCount).toBe(0);
    await expect(reader.next()).rejects.toMatchObject({ kind: 'unavailable' });
  });

  it('opens one tunnel for each log of an agent with protocol 1', async () => {
    const { tunnels, read } = createWorld(/* supportsLogChannel */ false);
    for (const reader of [read(), read()]) void reader.next();
    await settle();
    expect(tunnels.targets.map((target) => target.case)).toEqual(['logs', 'logs']);
  });

  it('refuses the 257th log of one client and accepts a log of another client', async () => {
    const { streams, read, stop } = createWorld();
    for (let log = 0; log < 256; log += 1)
      void read()
        .next()
        .catch(() => undefined);
    await expect(read().next()).rejects.toThrow('this client has 256 logs of node "node-1" open');
    const other = streams.read('node-1', request(), stop.signal, {}).next();
    void other.catch(() => undefined);
    await settle();
    stop.abort();
    await expect(other).rejects.toThrow('the client has disconnected');
  });
});

describe('NodeLogReader with a TunnelHub and an agent of protocol 1', () => {
  it('refuses the 13th log of one client, and leaves capacity for its commands and for logs of others', async () => {
    const clock = new ManualClock();
    const sessions = {
      setTunnelListener: () => undefined,
      requestTunnel: () => true,
      withdrawTunnel: () => undefined,
    };
    const hub = new TunnelHub({ clock, random: createSeededRandom(1) }, sessions);
    const streams = new NodeLogReader(hub, () => false);
    const stop = new AbortController();
    const [one, another] = [{}, {}];
    /** Resolves with `open` when the stream is open, or with the message of its error. */
    const getOutcome = (opening: Promise<unknown>): Promise<unknown> =>
      Promise.race([opening.catch((reason: Error) => reason.message), settle().then(() => 'open')]);
    const openLog = (client: object): Promise<unknown> =>
      getOutcome(streams.read('node-1', request(), stop.signal, client).next());
    const outcomes = await Promise.all(Array.from({ length: 32 }, () => openLog(one)));
    expect(outcomes.filter((outcome) => outcome === 'open')).toHaveLength(12);
    expect(outcomes.at(-1)).toBe('this client has 12 logs of node "node-1" open; close some first');
    expect(await openLog(another)).toBe('open');
    const target = {
      case: 'exec',
      value: { $typeName: 'cloudless.api.ExecCommandRequest' },
    } as TunnelPurpose;
    for (const client of [one, another])
      expect(
        await getOutcome(hub.open('node-1', target, stop.signal, undefined, client).next()),
      ).toBe('open');
    stop.abort();
  });
});
