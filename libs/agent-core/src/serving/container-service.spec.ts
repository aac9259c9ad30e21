import { create, type MessageInitShape } from '@bufbuild/protobuf';
import { durationFromMs } from '@bufbuild/protobuf/wkt';
import { CloudlessError, toContainerId } from '@cloudless/base';
import { settle } from '@cloudless/base/testing';
import {
  ExecCommandRequestSchema,
  ExecStartSchema,
  GetContainerStatusRequestSchema,
  LogChannelFramesSchema,
  LogChannelSchema,
  OutputStream,
  StreamLogsRequestSchema,
  TunnelEndSchema,
  type LogChannelFrame,
  type ExecCommandResponse,
  type LogEntry,
} from '@cloudless/api';
import { toBehaviourCommand } from '@cloudless/runtime/testing';
import { CONTAINER_LABELS } from '../container/container-labels.js';
import { aStartOrder, aStopOrder, AgentTestBed } from '../testing/index.js';

async function createTestBed(...replicaIds: readonly string[]): Promise<AgentTestBed> {
  const testBed = new AgentTestBed();
  await testBed.start();
  for (const [slot, replicaId] of replicaIds.entries())
    testBed.coordinator.sendOrder(aStartOrder({ replicaId, slot }));
  await settle();
  return testBed;
}

const idOf = (testBed: AgentTestBed, replicaId = 'web-1') =>
  toContainerId(testBed.requireReport(replicaId).containerId);
const logs = (init: MessageInitShape<typeof StreamLogsRequestSchema>) =>
  create(StreamLogsRequestSchema, init);
const neverAborted = new AbortController().signal;

/** Reads log entries in the background until the stream ends or `stop` is aborted. */
function follow(testBed: AgentTestBed, request: MessageInitShape<typeof StreamLogsRequestSchema>) {
  const entries: LogEntry[] = [];
  const stop = new AbortController();
  const state = { done: false, failure: undefined as unknown };
  void (async () => {
    for await (const entry of testBed.agent.containers.streamLogs(logs(request), stop.signal))
      entries.push(entry);
  })().then(
    () => (state.done = true),
    (reason: unknown) => (state.failure = reason),
  );
  return { entries, stop, state, lines: () => entries.map(({ line }) => line) };
}

/** Returns the lines of a stream that ends by itself; rejects when the stream fails. */
async function readAll(
  testBed: AgentTestBed,
  request: MessageInitShape<typeof StreamLogsRequestSchema>,
): Promise<readonly string[]> {
  const { state, lines } = follow(testBed, request);
  await settle();
  if (state.failure !== undefined) throw state.failure;
  expect(state.done).toBe(true);
  return lines();
}

async function crashWriting(testBed: AgentTestBed, text: string): Promise<void> {
  testBed.machine.write(idOf(testBed), 'stdout', text);
  testBed.machine.exit(idOf(testBed), 1);
  await testBed.clock.advance(10_000);
}

describe('streamLogs', () => {
  it('returns the lines of all kept containers of a replica in order', async () => {
    const testBed = await createTestBed('web-1');
    await crashWriting(testBed, 'a1\na2\n');
    await crashWriting(testBed, 'b1\nb2\n');
    testBed.machine.write(idOf(testBed), 'stdout', 'c1\n');
    expect(await readAll(testBed, { replicaId: 'web-1' })).toEqual(['a1', 'a2', 'b1', 'b2', 'c1']);
    expect(await readAll(testBed, { replicaId: 'web-1', tailLines: 2 })).toEqual(['b2', 'c1']);
    expect(await readAll(testBed, { replicaId: 'web-1', tailLines: 0 })).toEqual([]);
    expect(await readAll(testBed, { containerId: idOf(testBed).slice(0, 12) })).toEqual(['c1']);
  });

  it('returns only the lines of the container before the last restart with previous', async () => {
    const testBed = await createTestBed('web-1', 'web-2');
    const request = { replicaId: 'web-1', previous: true };
    await expect(readAll(testBed, request)).rejects.toThrow('no replica has an earlier container');
    await crashWriting(testBed, 'a1\n');
    await crashWriting(testBed, 'b1\nb2\n');
    testBed.machine.write(idOf(testBed), 'stdout', 'c1\n');
    expect(await readAll(testBed, request)).toEqual(['b1', 'b2']);
    expect(await readAll(testBed, { name: 'web', previous: true })).toEqual(['b1', 'b2']);
    const conflicts: readonly [string, Parameters<typeof readAll>[1]][] = [
      ['follow', { follow: true }],
      ['container_id', { containerId: idOf(testBed) }],
      ['after', { after: [{ containerId: idOf(testBed), sequence: 1n }] }],
      ['after_sequence', { afterSequence: 1n }],
    ];
    for (const [field, fields] of conflicts)
      await expect(readAll(testBed, { ...request, ...fields })).rejects.toThrow(
        new RegExp(`previous: cannot be combined with ${field}$`),
      );
  });

  it('follows a replica over restarts in place until the final phase of the replica', async () => {
    const testBed = await createTestBed('web-1');
    const reader = follow(testBed, { replicaId: 'web-1', follow: true });
    await settle();
    await crashWriting(testBed, 'a\n');
    await crashWriting(testBed, 'b\n');
    testBed.machine.write(idOf(testBed), 'stderr', 'c\n');
    await settle();
    expect(reader.lines()).toEqual(['a', 'b', 'c']);
    expect(reader.state.done).toBe(false);
    testBed.coordinator.sendOrder(aStopOrder());
    await settle();
    expect(reader.state).toEqual({ done: true, failure: undefined });
  });

  it('merges the lines of all replicas of a workload by time', async () => {
    const testBed = await createTestBed('web-1', 'web-2');
    for (const [replicaId, text] of [
      ['web-1', 'a'],
      ['web-2', 'b'],
      ['web-1', 'c'],
    ] as const) {
      testBed.machine.write(idOf(testBed, replicaId), 'stdout', `${text}\n`);
      await testBed.clock.advance(1);
    }
    expect(await readAll(testBed, { name: 'web' })).toEqual(['a', 'b', 'c']);
    const reader = follow(testBed, { name: 'web', namespace: 'default', follow: true });
    await settle();
    testBed.machine.write(idOf(testBed, 'web-2'), 'stdout', 'd\n');
    await settle();
    expect(reader.lines()).toHaveLength(4);
    reader.stop.abort();
    await settle();
    expect(reader.state.done).toBe(true);
  });

  it('sends a bookmark after 15 s without lines', async () => {
    const testBed = await createTestBed('web-1');
    testBed.machine.write(idOf(testBed), 'stdout', 'a\n');
    const reader = follow(testBed, { replicaId: 'web-1', follow: true });
    await testBed.clock.advance(31_000);
    expect(reader.entries.map(({ sequence }) => sequence)).toEqual([1n, 0n, 0n]);
    expect(reader.entries.at(-1)).toMatchObject({
      replicaId: 'web-1',
      containerId: idOf(testBed),
      line: '',
    });
    reader.stop.abort();
    await settle();
    expect(reader.state.done).toBe(true);
  });

  it('replaces bytes that are not UTF-8 and adds the raw bytes only then', async () => {
    const testBed = await createTestBed();
    const command = toBehaviourCommand([
      { step: 'writeBytes', stream: 'stderr', bytes: [0x61, 0xff, 10, 0xc3, 0xa9, 10] },
      { step: 'hold' },
    ]);
    testBed.coordinator.sendOrder(aStartOrder({ spec: { command: [...command] } }));
    await settle();
    const reader = follow(testBed, { replicaId: 'web-1' });
    await settle();
    expect(reader.entries).toMatchObject([
      {
        sequence: 1n,
        line: 'a\ufffd',
        raw: Uint8Array.of(0x61, 0xff),
        stream: OutputStream.STDERR,
      },
      { sequence: 2n, line: 'é', raw: new Uint8Array(0) },
    ]);
  });

  it('resumes one container after the line of after_sequence, which requires a container id', async () => {
    const testBed = await createTestBed('web-1');
    testBed.machine.write(idOf(testBed), 'stdout', 'a\nb\nc\n');
    expect(await readAll(testBed, { containerId: idOf(testBed), afterSequence: 2n })).toEqual([
      'c',
    ]);
    await expect(readAll(testBed, { replicaId: 'web-1', afterSequence: 2n })).rejects.toMatchObject(
      {
        kind: 'invalid',
        message: 'after_sequence: needs container_id',
      },
    );
  });

  it('sends the start position first when a client follows with a tail, so that the client can resume', async () => {
    const testBed = await createTestBed('web-1');
    testBed.machine.write(idOf(testBed), 'stdout', 'a\nb\nc\n');
    for (const [tailLines, position] of [
      [0, 3n],
      [2, 1n],
      [9, 0n],
    ] as const) {
      const reader = follow(testBed, { replicaId: 'web-1', follow: true, tailLines });
      await settle();
      expect(reader.entries[0]).toMatchObject({
        containerId: idOf(testBed),
        sequence: 0n,
        position,
      });
      expect(reader.entries).toHaveLength(1 + Math.min(3, tailLines));
      reader.stop.abort();
    }
  });

  it('sends the position of the last line when the tail has no line of the requested stream', async () => {
    const testBed = await createTestBed('web-1');
    testBed.machine.write(idOf(testBed), 'stdout', 'a\nb\n');
    const { entries } = follow(testBed, {
      replicaId: 'web-1',
      follow: true,
      tailLines: 5,
      streams: [OutputStream.STDERR],
    });
    await settle();
    expect(entries).toMatchObject([{ sequence: 0n, position: 2n }]);
    testBed.machine.write(idOf(testBed), 'stderr', 'c\n');
    await settle();
    expect(entries.slice(1)).toMatchObject([{ sequence: 3n, line: 'c' }]);
  });

  it('resumes a replica after the received lines, including later containers, and ignores the tail', async () => {
    const testBed = await createTestBed('web-1');
    const first = idOf(testBed);
    await crashWriting(testBed, 'a1\na2\na3\n');
    const second = idOf(testBed);
    await crashWriting(testBed, 'b1\nb2\n');
    testBed.machine.write(idOf(testBed), 'stdout', 'c1\n');
    const from = (containerId: string, sequence: bigint) => ({
      replicaId: 'web-1',
      after: [{ containerId, sequence }],
      tailLines: 0,
    });
    expect(await readAll(testBed, from(first, 2n))).toEqual(['a3', 'b1', 'b2', 'c1']);
    expect(await readAll(testBed, from(second, 2n))).toEqual(['c1']);
    expect(await readAll(testBed, { ...from(second, 1n), name: 'web', replicaId: '' })).toEqual([
      'b2',
      'c1',
    ]);
  });

  it.each([
    {
      request: { containerId: 'abcdef012345' + '0'.repeat(52) },
      kind: 'notFound',
      message: 'container "abcdef012345…" is not on node node-1',
    },
    {
      request: { replicaId: 'web-7' },
      kind: 'notFound',
      message: 'replica "web-7" is not on node node-1',
    },
    {
      request: { name: 'db' },
      kind: 'notFound',
      message: 'workload default/db has no replica on node node-1',
    },
    {
      request: {},
      kind: 'invalid',
      message: 'container_id: is required, or replica_id, or the name of a workload',
    },
  ])('rejects a request with "$message"', async ({ request, kind, message }) => {
    const testBed = await createTestBed('web-1');
    await expect(readAll(testBed, request)).rejects.toMatchObject({ kind, message });
  });
});

describe('execCommand', () => {
  const exec = (init: MessageInitShape<typeof ExecCommandRequestSchema>) =>
    create(ExecCommandRequestSchema, init);

  it('runs in the container with the lowest slot of a workload', async () => {
    const testBed = await createTestBed('web-2', 'web-1');
    testBed.machine.setExecHandler(() => ({ exitCode: 3, stdout: 'out', stderr: 'err' }));
    expect(
      await testBed.agent.containers.execCommand(
        exec({ name: 'web', command: ['x'] }),
        neverAborted,
      ),
    ).toMatchObject({
      stdout: 'out',
      stderr: 'err',
      exitCode: 3,
      truncated: false,
      replicaId: 'web-2',
      containerId: idOf(testBed, 'web-2'),
    });
  });

  it('does not run in a replica that is being stopped while another one runs', async () => {
    const testBed = await createTestBed('web-1', 'web-2');
    testBed.machine.setExecHandler(() => ({ exitCode: 0, stdout: '', stderr: '' }));
    const { replicaId } = await testBed.agent.containers.execCommand(
      exec({ name: 'web', command: ['x'] }),
      neverAborted,
    );
    testBed.coordinator.sendOrder(aStopOrder({ replicaId, preStopMs: 60_000 }));
    await settle();
    const result = await testBed.agent.containers.execCommand(
      exec({ name: 'web', command: ['x'] }),
      neverAborted,
    );
    expect(result.replicaId).not.toBe(replicaId);
  });

  it('keeps 1 MiB of each stream and reports truncation', async () => {
    const testBed = await createTestBed('web-1');
    const command = toBehaviourCommand([
      { step: 'fill', stream: 'stdout', letter: 'a', count: 3_000_000 },
      { step: 'exit', code: 0 },
    ]);
    const { stdout, truncated, exitCode } = await testBed.agent.containers.execCommand(
      exec({ replicaId: 'web-1', command: [...command] }),
      neverAborted,
    );
    expect({ length: stdout.length, truncated, exitCode }).toEqual({
      length: 1_048_576,
      truncated: true,
      exitCode: 0,
    });
  });

  it('ends the command after 30 s or the requested timeout', async () => {
    const testBed = await createTestBed('web-1');
    for (const [timeout, waitMs] of [
      [{}, 30_000],
      [{ timeout: durationFromMs(2_000) }, 2_000],
    ] as const) {
      const running = testBed.agent.containers.execCommand(
        exec({ replicaId: 'web-1', command: ['sleep'], ...timeout }),
        neverAborted,
      );
      const failed = expect(running).rejects.toMatchObject({ kind: 'deadline' });
      await testBed.clock.advance(waitMs);
      await failed;
    }
  });

  it('rejects a replica without a running container', async () => {
    const testBed = await createTestBed('web-1');
    testBed.machine.exit(idOf(testBed), 1);
    await settle();
    await expect(
      testBed.agent.containers.execCommand(
        exec({ replicaId: 'web-1', command: ['x'] }),
        neverAborted,
      ),
    ).rejects.toMatchObject({
      kind: 'precondition',
    });
  });
});

describe('getContainerStatus', () => {
  it('finds a container by a unique id prefix and rejects an ambiguous prefix', async () => {
    const testBed = await createTestBed('web-1');
    const status = (containerId: string) =>
      testBed.agent.containers.getContainerStatus(
        create(GetContainerStatusRequestSchema, { containerId }),
      );
    expect(await status(idOf(testBed).slice(0, 12))).toMatchObject({
      containerId: idOf(testBed),
      replicaId: 'web-1',
      namespace: 'default',
      workload: 'web',
      nodeId: 'node-1',
      runtime: 'process',
    });
    const [known] = await testBed.runtime.list();
    const similarId = toContainerId(`${idOf(testBed).slice(0, 20)}${'0'.repeat(44)}`);
    await testBed.runtime.start({
      containerId: similarId,
      labels: { ...known?.labels, [CONTAINER_LABELS.replica]: 'web-2' },
      command: ['server'],
      args: [],
      env: {},
      ports: [],
      limits: {},
    });
    await expect(status(idOf(testBed).slice(0, 12))).rejects.toMatchObject({ kind: 'invalid' });
    await expect(status('')).rejects.toMatchObject({
      kind: 'invalid',
      message: 'container_id: is required',
    });
    expect((await testBed.agent.containers.listContainers()).containers).toHaveLength(2);
  });
});

describe('TunnelServer', () => {
  const followRequest = (testBed: AgentTestBed) =>
    ({ case: 'logs', value: logs({ containerId: idOf(testBed), follow: true }) }) as const;

  it('streams logs in a tunnel until the coordinator ends the tunnel', async () => {
    const testBed = await createTestBed('web-1');
    testBed.coordinator.openTunnel('t1', followRequest(testBed));
    await settle();
    testBed.machine.write(idOf(testBed), 'stdout', 'a\n');
    await settle();
    expect(testBed.coordinator.tunnels.get('t1')).toMatchObject([
      { case: 'tunnelId', value: 't1' },
      { case: 'log', value: { line: 'a' } },
    ]);
    testBed.coordinator.endTunnels();
    await settle();
    testBed.machine.write(idOf(testBed), 'stdout', 'b\n');
    await settle();
    expect(testBed.coordinator.tunnels.get('t1')).toHaveLength(2);
  });

  it('carries several logs in one log channel, and the close of one log does not affect the others', async () => {
    const testBed = await createTestBed('web-1');
    testBed.coordinator.openTunnel('t1', { case: 'logChannel', value: create(LogChannelSchema) });
    await settle();
    const sendFrame = (logId: bigint, frame: LogChannelFrame['frame']): void =>
      testBed.coordinator.sendInTunnels({
        case: 'logChannel',
        value: create(LogChannelFramesSchema, { frames: [{ logId, frame }] }),
      });
    for (const logId of [1n, 2n]) {
      sendFrame(logId, { case: 'open', value: followRequest(testBed).value });
      sendFrame(logId, { case: 'window', value: 10_000n });
    }
    await settle();
    testBed.machine.write(idOf(testBed), 'stdout', 'a\n');
    await settle();
    sendFrame(1n, { case: 'close', value: create(TunnelEndSchema) });
    await settle();
    testBed.machine.write(idOf(testBed), 'stdout', 'b\n');
    await settle();
    const framesNow = () =>
      testBed.coordinator.tunnels
        .get('t1')!
        .flatMap((frame) => (frame.case === 'logChannel' ? frame.value.frames : []));
    const entries = framesNow();
    expect(entries).toMatchObject([
      { logId: 1n, frame: { case: 'entry', value: { line: 'a' } } },
      { logId: 2n, frame: { case: 'entry', value: { line: 'a' } } },
      { logId: 2n, frame: { case: 'entry', value: { line: 'b' } } },
    ]);
    testBed.coordinator.endTunnels();
    await settle();
    testBed.machine.write(idOf(testBed), 'stdout', 'c\n');
    await settle();
    expect(framesNow()).toHaveLength(3);
  });

  it('ends a command and its children when the coordinator ends the tunnel', async () => {
    const testBed = await createTestBed('web-1');
    const command = toBehaviourCommand([{ step: 'child', name: 'kid' }, { step: 'hold' }]);
    testBed.coordinator.openTunnel('t1', {
      case: 'exec',
      value: create(ExecCommandRequestSchema, { replicaId: 'web-1', command: [...command] }),
    });
    await settle();
    expect(testBed.machine.hasChild('kid')).toBe(true);
    testBed.coordinator.endTunnels();
    await settle();
    expect(testBed.machine.hasChild('kid')).toBe(false);
  });

  it.each([
    {
      name: 'in pieces to a coordinator that joins them',
      requestFields: { execInPieces: true },
      pieces: [65_536, 34_464],
    },
    {
      name: 'in one frame to a coordinator of an earlier version',
      requestFields: {},
      pieces: [100_000],
    },
  ])('sends the result of a command $name', async ({ requestFields, pieces }) => {
    const testBed = await createTestBed('web-1');
    testBed.machine.setExecHandler(() => ({
      exitCode: 3,
      stdout: 'a'.repeat(100_000),
      stderr: 'err',
    }));
    const value = create(ExecCommandRequestSchema, { replicaId: 'web-1', command: ['x'] });
    testBed.coordinator.openTunnel('t1', { case: 'exec', value }, requestFields);
    await settle();
    const frames = testBed.coordinator.tunnels.get('t1')!.slice(1, -1);
    expect(frames.map((frame) => (frame.value as ExecCommandResponse).stdout.length)).toEqual(
      pieces,
    );
    expect(frames.map((frame) => frame.case)).toEqual([
      ...pieces.slice(1).map(() => 'execPiece'),
      'exec',
    ]);
    expect(frames.at(-1)).toMatchObject({ value: { exitCode: 3 } });
  });

  it('sends the code and message of a failed call', async () => {
    const testBed = await createTestBed('web-1');
    testBed.coordinator.openTunnel('t1', {
      case: 'status',
      value: create(GetContainerStatusRequestSchema, { containerId: 'f'.repeat(64) }),
    });
    await settle();
    expect(testBed.coordinator.tunnels.get('t1')?.[1]).toMatchObject({
      case: 'error',
      value: { code: 5, message: 'container "ffffffffffff…" is not on node node-1' },
    });
  });

  it.each([
    { kind: 'exhausted', code: 8, text: 'the file system of /data is full' },
    { kind: 'unavailable', code: 14, text: 'the supervisor does not answer' },
  ] as const)(
    'names the node when a command fails with kind $kind',
    async ({ kind, code, text }) => {
      const testBed = await createTestBed('web-1');
      testBed.machine.setExecHandler(() => {
        throw new CloudlessError(kind, text);
      });
      const value = create(ExecCommandRequestSchema, { replicaId: 'web-1', command: ['x'] });
      testBed.coordinator.openTunnel('t1', { case: 'exec', value });
      await settle();
      expect(testBed.coordinator.tunnels.get('t1')?.[1]).toMatchObject({
        case: 'error',
        value: { code, message: `node node-1: ${text}` },
      });
    },
  );

  it('refuses the 41st tunnel, and accepts tunnels again after the others have ended', async () => {
    const testBed = await createTestBed('web-1');
    for (let tunnel = 0; tunnel < 41; tunnel += 1)
      testBed.coordinator.openTunnel(`t${tunnel}`, followRequest(testBed));
    await settle();
    expect(testBed.coordinator.received).toContainEqual(
      expect.objectContaining({
        case: 'tunnelRefused',
        value: expect.objectContaining({
          tunnelId: 't40',
          reason: 'the node already serves 40 tunnels',
        }),
      }),
    );
    testBed.coordinator.endTunnels();
    await settle();
    testBed.coordinator.openTunnel('t41', followRequest(testBed));
    await settle();
    expect(testBed.coordinator.tunnels.has('t41')).toBe(true);
  });

  it('refuses tunnels while the agent is stopping', async () => {
    const testBed = await createTestBed('web-1');
    const stopped = testBed.stop();
    testBed.coordinator.openTunnel('late', followRequest(testBed));
    await stopped;
    expect(testBed.coordinator.tunnels.has('late')).toBe(false);
  });

  it('ends a tunnel when the coordinator stops answering pings', async () => {
    const testBed = await createTestBed('web-1');
    const command = toBehaviourCommand([{ step: 'child', name: 'kid' }, { step: 'hold' }]);
    testBed.coordinator.openTunnel('t1', {
      case: 'execStream',
      value: create(ExecStartSchema, { replicaId: 'web-1', command: [...command] }),
    });
    await settle();
    expect(testBed.machine.hasChild('kid')).toBe(true);
    testBed.coordinator.answersPings = false;
    await testBed.clock.advance(10_000);
    expect(testBed.machine.hasChild('kid')).toBe(false);
  });

  it('sends no log lines while the coordinator does not read the tunnel', async () => {
    const testBed = await createTestBed('web-1');
    testBed.coordinator.readsTunnels = false;
    testBed.coordinator.openTunnel('t1', followRequest(testBed));
    await settle();
    for (let line = 0; line < 1_000; line += 1)
      testBed.machine.write(idOf(testBed), 'stdout', `${line}\n`);
    await settle();
    expect(testBed.coordinator.tunnels.get('t1')).toHaveLength(1);
    testBed.coordinator.dropConnections();
    await settle();
    expect(testBed.agent.connected).toBe(false);
  });
});
