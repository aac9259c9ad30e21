import { EventEmitter } from 'node:events';
import type { Socket } from 'node:net';
import { beforeEach, describe, expect, it } from '@jest/globals';
import { silentLog } from '@cloudless/base';
import { aScript } from '../testing/container-calls.js';
import { FrameParser } from '../wire/frames.js';
import {
  encodeMessage,
  parseMessage,
  PROTOCOL,
  type ClientMessage,
  type SupervisorMessage,
  type SupervisorSettings,
} from '../wire/messages.js';
import { ClientSession } from './client-session.js';
import type { Supervisor } from './supervisor.js';

const settings = { address: '127.0.0.1' } as SupervisorSettings;
const hello: ClientMessage = { type: 'hello', protocol: PROTOCOL, settings, events: true };

/**
 * The supervisor's end of a connection. Records the messages that the session sends, and how the
 * session closes the connection.
 */
class FakeSocket extends EventEmitter {
  readonly parser = new FrameParser();
  readonly sent: SupervisorMessage[] = [];
  destroyed = false;
  writableEnded = false;
  writableLength = 0;

  write(bytes: Buffer): boolean {
    for (const { payload } of this.parser.feed(bytes)) this.sent.push(parseMessage(payload));
    return true;
  }

  end(): void {
    this.writableEnded = true;
  }

  destroy(): void {
    this.destroyed = true;
    this.emit('close');
  }
}

let socket: FakeSocket;
let listeners: Set<unknown>;
let configured: SupervisorSettings | undefined;
/** For how long each start and each renewal waited, as the session told the supervisor. */
let waits: { readonly type: 'start' | 'renew'; readonly waitedMs: number | undefined }[];

beforeEach(() => {
  socket = new FakeSocket();
  listeners = new Set();
  configured = undefined;
  waits = [];
  const supervisor = {
    hasLeases: true,
    configure: (next: SupervisorSettings) => (configured = next),
    list: () => [],
    addListener: (listener: unknown) => {
      listeners.add(listener);
      return () => listeners.delete(listener);
    },
    start: async (_request: unknown, waitedMs?: number) => waits.push({ type: 'start', waitedMs }),
    renew: (_leases: unknown, waitedMs?: number) => waits.push({ type: 'renew', waitedMs }),
  } as unknown as Supervisor;
  void new ClientSession(socket as unknown as Socket, {
    ...{ supervisor, log: silentLog, version: '9.9', onShutdown: () => undefined },
    machineUptimeMs: () => 1_000,
  });
});

const receive = (message: ClientMessage): boolean => socket.emit('data', encodeMessage(message));

describe('ClientSession', () => {
  it('answers a hello with a hello, and listens for events until the client disconnects', () => {
    receive(hello);
    expect(socket.sent).toMatchObject([{ type: 'hello', protocol: PROTOCOL, version: '9.9' }]);
    expect([configured, listeners.size]).toEqual([settings, 1]);
    socket.destroy();
    expect(listeners.size).toBe(0);
  });

  it('disconnects a client that sends a request before its hello', () => {
    receive({ type: 'list', id: 1 });
    expect([socket.destroyed, socket.sent]).toEqual([true, []]);
  });

  it('answers a hello of another version, then ends the connection without applying settings', () => {
    receive({ ...hello, protocol: PROTOCOL + 1 });
    expect(socket.sent).toMatchObject([{ type: 'hello', protocol: PROTOCOL }]);
    expect([socket.writableEnded, configured, listeners.size]).toEqual([true, undefined, 0]);
  });

  it('disconnects a client that leaves more than 16 MiB of responses unread', async () => {
    receive(hello);
    socket.writableLength = 16 * 1024 * 1024 + 1;
    receive({ type: 'list', id: 1 });
    await new Promise((resolve) => setImmediate(resolve));
    expect(socket.destroyed).toBe(true);
  });

  it.each([
    { name: 'how long starts and renewals have waited', sentAtUptimeMs: 400, waitedMs: 600 },
    { name: 'no wait when the client is of an earlier version', waitedMs: undefined },
  ])('tells the supervisor $name', ({ name: _, waitedMs, ...sentAt }) => {
    receive(hello);
    receive({ type: 'start', id: 1, request: aScript('true'), ...sentAt });
    receive({ type: 'renew', id: 2, leases: [], ...sentAt });
    expect(waits).toEqual([
      { type: 'start', waitedMs },
      { type: 'renew', waitedMs },
    ]);
  });

  it('disconnects a client that sends malformed frames', () => {
    socket.emit('data', Buffer.alloc(16, 255));
    expect(socket.destroyed).toBe(true);
  });
});
