import type { Server, Socket } from 'node:net';
import { unmapIpv4 } from '@cloudless/base';

/** Connections that the server holds at a time. */
export const MAX_TCP_CONNECTIONS = 256;
/** Connections of one client address. */
export const MAX_TCP_PER_CLIENT = 32;
/** Questions of one connection that wait for answers; the connection is read on after them. */
const MAX_WAITING = 16;
/** Time without a question after which a connection is closed. @see RFC 7766, section 6.2.3 */
const IDLE_MS = 10_000;
/** Largest question. */
const MAX_QUESTION_BYTES = 4_096;

type Answer = (
  message: Buffer,
  address: string,
) => Buffer | undefined | Promise<Buffer | undefined>;

/** Answers questions by TCP: each message has a prefix of two bytes with its length. */
export function serveTcp(server: Server, answer: Answer): void {
  const perClient = new Map<string, number>();
  let open = 0;
  server.on('connection', (socket) => {
    const address = unmapIpv4(socket.remoteAddress ?? '');
    const ofClient = perClient.get(address) ?? 0;
    if (open >= MAX_TCP_CONNECTIONS || ofClient >= MAX_TCP_PER_CLIENT) {
      socket.destroy();
      return;
    }
    open += 1;
    perClient.set(address, ofClient + 1);
    socket.on('close', () => {
      open -= 1;
      const left = (perClient.get(address) ?? 1) - 1;
      if (left > 0) perClient.set(address, left);
      else perClient.delete(address);
    });
    serveConnection(socket, (message) => answer(message, address));
  });
}

function serveConnection(
  socket: Socket,
  answer: (message: Buffer) => Buffer | undefined | Promise<Buffer | undefined>,
): void {
  let received: Buffer = Buffer.alloc(0);
  let waiting = 0;
  let ended = false;
  const settle = (): void => {
    if (ended && waiting === 0) socket.end();
  };
  const respond = (response: Buffer | undefined): void => {
    waiting -= 1;
    if (response !== undefined && socket.writable) {
      const prefix = Buffer.alloc(2);
      prefix.writeUInt16BE(response.length, 0);
      socket.write(Buffer.concat([prefix, response]));
    }
    if (socket.writableNeedDrain) socket.once('drain', readOn);
    else readOn();
    settle();
  };
  const readOn = (): void => {
    while (waiting < MAX_WAITING && received.length >= 2) {
      const length = received.readUInt16BE(0);
      if (length > MAX_QUESTION_BYTES) {
        socket.destroy();
        return;
      }
      if (received.length < 2 + length) break;
      const message = Buffer.from(received.subarray(2, 2 + length));
      received = received.subarray(2 + length);
      waiting += 1;
      const response = answer(message);
      Promise.resolve(response).then(respond, () => socket.destroy());
    }
    if (waiting < MAX_WAITING && !socket.writableNeedDrain) socket.resume();
    else socket.pause();
  };
  socket.setTimeout(IDLE_MS, () => socket.destroy());
  socket.on('error', () => socket.destroy());
  socket.on('data', (data: Buffer) => {
    received = received.length === 0 ? data : Buffer.concat([received, data]);
    readOn();
  });
  socket.on('end', () => {
    ended = true;
    settle();
  });
  socket.resume(); // the server may begin its connections paused
}
