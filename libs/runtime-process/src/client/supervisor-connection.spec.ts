import { mkdtempSync, rmSync } from 'node:fs';
import net from 'node:net';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from '@jest/globals';
import { ManualClock } from '@cloudless/base/testing';
import { layout } from '../supervisor/container/container-paths.js';
import { encodeMessage, PROTOCOL, type SupervisorSettings } from '../wire/messages.js';
import { ANSWER_TIMEOUT_MS, limitAnswer, openSupervisorSocket } from './supervisor-connection.js';

const settings = { address: '127.0.0.1' } as SupervisorSettings;
let directory: string;
let server: net.Server | undefined;

beforeEach(() => {
  directory = mkdtempSync(path.join(tmpdir(), 'cloudless-socket-'));
});
afterEach(async () => {
  await new Promise<void>((resolve) => (server ? server.close(() => resolve()) : resolve()));
  server = undefined;
  rmSync(directory, { recursive: true });
});

/** Listens as a supervisor does, sends `bytes` to each client and ends the connection. */
async function listen(bytes: Buffer): Promise<void> {
  const listening = (server = net.createServer((socket) => {
    socket.on('error', () => undefined);
    socket.resume().end(bytes);
  }));
  await new Promise<void>((resolve) => listening.listen(layout.socket(directory), resolve));
}

/** Listens as a stopped supervisor does. The promise resolves when a client has sent its hello. */
async function listenSilently(): Promise<{ readonly promise: Promise<void> }> {
  let onGreeted = (): void => undefined;
  const promise = new Promise<void>((resolve) => (onGreeted = resolve));
  const listening = (server = net.createServer((socket) => {
    socket.on('error', () => undefined);
    socket.once('data', onGreeted);
  }));
  await new Promise<void>((resolve) => listening.listen(layout.socket(directory), resolve));
  return { promise };
}

const encodeHello = (protocol: number): Buffer =>
  encodeMessage({ type: 'hello', protocol, version: '9.9', pid: 17 });

describe('openSupervisorSocket', () => {
  it('returns the hello of the supervisor', async () => {
    await listen(encodeHello(PROTOCOL));
    const { hello, socket } = await openSupervisorSocket(directory, settings, true);
    expect(hello).toMatchObject({ version: '9.9', pid: 17 });
    socket.destroy();
  });

  it('rejects a supervisor of another protocol version with an error that names both versions', async () => {
    await listen(encodeHello(PROTOCOL + 1));
    await expect(openSupervisorSocket(directory, settings, true)).rejects.toMatchObject({
      kind: 'precondition',
      message: expect.stringContaining(
        `(process 17, version 9.9) speaks protocol ${PROTOCOL + 1}, but this program speaks protocol ${PROTOCOL}`,
      ),
    });
  });

  it.each([
    { name: 'closes the connection without a hello', bytes: Buffer.alloc(0), kind: 'unavailable' },
    { name: 'sends bytes that are no frame', bytes: Buffer.alloc(16, 255), kind: 'invalid' },
  ])('fails when the other side $name', async ({ bytes, kind }) => {
    await listen(bytes);
    await expect(openSupervisorSocket(directory, settings, true)).rejects.toMatchObject({ kind });
  });

  it('fails when the supervisor accepts the connection and never answers, as when it is stopped', async () => {
    const clock = new ManualClock();
    const greeted = await listenSilently();
    const opening = openSupervisorSocket(directory, settings, false, { clock });
    const outcome = expect(opening).rejects.toMatchObject({
      kind: 'unavailable',
      message: 'the supervisor of the processes does not answer: no reply within 10 s',
    });
    await greeted.promise;
    await clock.advance(ANSWER_TIMEOUT_MS);
    await outcome;
  });

  it('reports that the connection was accepted, and ends the wait for a silent supervisor on an abort', async () => {
    const greeted = await listenSilently();
    const stop = new AbortController();
    let accepted = 0;
    const wait = { onAccepted: () => (accepted += 1), signal: stop.signal };
    const outcome = expect(
      openSupervisorSocket(directory, settings, true, wait),
    ).rejects.toMatchObject({ kind: 'unavailable', message: 'no connection to the supervisor' });
    await greeted.promise;
    expect(accepted).toBe(1);
    stop.abort();
    await outcome;
  });

  it('fails when no supervisor listens', async () => {
    await expect(openSupervisorSocket(directory, settings, true)).rejects.toMatchObject({
      kind: 'unavailable',
    });
  });
});

describe('limitAnswer', () => {
  it('fails after 10 s without an answer', async () => {
    const clock = new ManualClock();
    const outcome = expect(limitAnswer(new Promise(() => undefined), clock)).rejects.toMatchObject({
      kind: 'unavailable',
      message: 'the supervisor of the processes does not answer: no reply within 10 s',
    });
    await clock.advance(ANSWER_TIMEOUT_MS);
    await outcome;
  });

  it('fails 10 s after the time that the request itself may take', async () => {
    const clock = new ManualClock();
    const outcome = expect(
      limitAnswer(new Promise(() => undefined), clock, 30_000),
    ).rejects.toMatchObject({
      kind: 'unavailable',
      message: 'the supervisor of the processes does not answer: no reply within 40 s',
    });
    await clock.advance(39_999);
    expect(clock.pendingTimers).toBe(1);
    await clock.advance(1);
    await outcome;
  });

  it('returns an answer and leaves no timer', async () => {
    const clock = new ManualClock();
    expect(await limitAnswer(Promise.resolve(7), clock)).toBe(7);
    expect(clock.pendingTimers).toBe(0);
  });
});
