import type { Socket } from 'node:net';
import { afterEach, beforeEach, describe, expect, it } from '@jest/globals';
import type { ExecEvent, ExecInput, ExecRequest } from '@cloudless/runtime';
import { systemClock } from '@cloudless/app-kit';
import { encodeEndStatus, FakeStreamServer, STREAMS } from '../testing/fake-stream-server.js';
import { waitUntil } from '../testing/real-cri-machine.js';
import { CommandStreams } from './command-streams.js';
import { ExecInputSender } from './exec-input.js';
import { encodeDataFrame, encodePingFrame } from './spdy.js';
import { openStreamConnection } from './upgrade.js';

const CHUNK = new Uint8Array(64 * 1024);
/** Number of chunks, 32 MiB together: more than kernel and client buffer together. */
const CHUNKS = 512;
const never = new AbortController().signal;

let server: FakeStreamServer;
let streams: CommandStreams | undefined;
/** Client side of the connection. */
let socket: Socket;

beforeEach(async () => {
  server = new FakeStreamServer();
  await server.listen();
});

afterEach(async () => {
  streams?.close();
  await server.dispose();
});

async function open(
  request: Pick<ExecRequest, 'stdin' | 'input'> = {},
): Promise<AsyncGenerator<ExecEvent>> {
  const opened = await openStreamConnection(server.url, never);
  socket = opened.socket as Socket;
  const input = new ExecInputSender({ command: ['any'], ...request });
  streams = new CommandStreams({ ...opened, input, tty: undefined, clock: systemClock });
  await streams.open();
  return streams.events();
}

/** Endless input for a command that reads nothing. */
async function* endless(): AsyncGenerator<ExecInput> {
  for (;;) yield { kind: 'stdin', data: CHUNK };
}

/** One chunk of input, then nothing, without an end. */
async function* oneChunk(): AsyncGenerator<ExecInput> {
  yield { kind: 'stdin', data: CHUNK };
  await new Promise<never>(() => undefined);
}

/**
 * Makes the server stop reading, send the exit status, and reset the connection. A kernel resets a
 * connection in this way when its input was left unread.
 */
function endAndReset(exitCode: number): void {
  server.peer.pause();
  server.peer.write(encodeDataFrame(STREAMS.error, encodeEndStatus(exitCode)));
  server.peer.resetAndDestroy();
}

/** Encodes the SPDY/3.1 frame RST_STREAM with status 5, CANCEL. */
function encodeResetFrame(streamId: number): Buffer {
  return Buffer.from([0x80, 3, 0, 3, 0, 0, 0, 8, 0, 0, 0, streamId, 0, 0, 0, 5]);
}

/** Reads the remaining events: the bytes of output, and the exit code, `none` without an exit. */
async function readRest(
  events: AsyncGenerator<ExecEvent>,
): Promise<{ readonly bytes: number; readonly exitCode: unknown }> {
  let bytes = 0;
  for await (const event of events) {
    if (event.kind === 'exited') return { bytes, exitCode: event.exitCode };
    bytes += event.data.length;
  }
  return { bytes, exitCode: 'none' };
}

describe('CommandStreams', () => {
  it('yields the exit code when the connection is reset before the caller reads it', async () => {
    const events = await open({ input: endless() });
    const result = readRest(events);
    await server.waitForInput(CHUNK.length);
    endAndReset(3);
    expect(await result).toEqual({ bytes: 0, exitCode: 3 });
  });

  it('yields the exit code that is still unread in the kernel when a write of input fails', async () => {
    const events = await open({ input: oneChunk() });
    await server.waitForInput(CHUNK.length);
    endAndReset(3);
    for (let turn = 0; turn < 3; turn += 1) socket.write(encodeDataFrame(STREAMS.stdin, CHUNK));
    expect(await readRest(events)).toEqual({ bytes: 0, exitCode: 3 });
  });

  it('yields output and exit code when the caller reads them only after the connection was reset', async () => {
    const events = await open({ input: endless() });
    const connectionEnd = new Promise((resolve) =>
      socket.once('end', resolve).once('close', resolve),
    );
    await server.waitForInput(CHUNK.length);
    server.peer.write(encodeDataFrame(STREAMS.stdout, new Uint8Array(100)));
    endAndReset(3);
    await connectionEnd;
    expect(await readRest(events)).toEqual({ bytes: 100, exitCode: 3 });
  });

  it('responds to pings of the runtime', async () => {
    await open();
    const received: Buffer[] = [];
    server.peer.on('data', (chunk: Buffer) => received.push(chunk));
    server.peer.write(encodePingFrame(7));
    while (!Buffer.concat(received).includes(encodePingFrame(7)))
      await new Promise((resolve) => server.peer.once('data', resolve));
  });

  it('stops sending input when the runtime resets the stream, and still yields the exit code', async () => {
    let leave = (): void => undefined;
    const left = new Promise<void>((resolve) => (leave = resolve));
    async function* watched(): AsyncGenerator<ExecInput> {
      try {
        yield* endless();
      } finally {
        leave();
      }
    }
    const result = readRest(await open({ input: watched() }));
    await server.waitForInput(CHUNK.length);
    server.peer.write(encodeResetFrame(STREAMS.stdin));
    await left;
    server.peer.write(encodeDataFrame(STREAMS.error, encodeEndStatus(0)));
    expect(await result).toEqual({ bytes: 0, exitCode: 0 });
  });

  it('yields the received output and fails when the connection ends without an exit code', async () => {
    const events = await open();
    server.peer.write(encodeDataFrame(STREAMS.stdout, CHUNK));
    server.peer.end();
    expect(await events.next()).toMatchObject({ value: { kind: 'output' } });
    await expect(readRest(events)).rejects.toMatchObject({
      kind: 'unavailable',
      message: 'exec: the container runtime closed the connection before the command ended',
    });
  });

  it('stops reading from the runtime while the caller does not read the output', async () => {
    const events = await open();
    for (let sent = 0; sent < CHUNKS; sent += 1)
      server.peer.write(encodeDataFrame(STREAMS.stdout, CHUNK));
    server.peer.write(encodeDataFrame(STREAMS.error, encodeEndStatus(0)));
    await waitUntil(() => socket.isPaused());
    expect(socket.bytesRead).toBeLessThan(8 * 1024 * 1024);
    expect(await readRest(events)).toEqual({ bytes: CHUNKS * CHUNK.length, exitCode: 0 });
  });
});
