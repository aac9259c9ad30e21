import { randomInt } from 'node:crypto';
import { createSocket } from 'node:dgram';
import { connect, isIPv6 } from 'node:net';
import type { Resolver } from './resolvers.js';

/** Sends a question to a resolver and returns the response. */
export type Exchange = (resolver: Resolver, question: Buffer, timeoutMs: number) => Promise<Buffer>;

/**
 * Asks a resolver by UDP from a new port with a new id, which a forger would have to guess, and by
 * TCP when the response is truncated.
 * @param question - A DNS message; its id is replaced.
 * @throws when no matching response arrives within `timeoutMs`.
 */
export const askResolver: Exchange = async (resolver, question, timeoutMs) => {
  const message = Buffer.from(question);
  message.writeUInt16BE(randomInt(0x1_0000), 0);
  const startedAt = performance.now();
  const response = await askByUdp(resolver, message, timeoutMs);
  const isTruncated = ((response[2] ?? 0) & 0x02) !== 0;
  if (!isTruncated) return response;
  const leftMs = Math.max(1, timeoutMs - (performance.now() - startedAt));
  return askByTcp(resolver, message, leftMs);
};

function askByUdp(resolver: Resolver, message: Buffer, timeoutMs: number): Promise<Buffer> {
  return new Promise((resolve, reject) => {
    const socket = createSocket(isIPv6(resolver.address) ? 'udp6' : 'udp4');
    let isDone = false;
    const finish = (act: () => void): void => {
      if (isDone) return;
      isDone = true;
      clearTimeout(timer);
      socket.close();
      act();
    };
    const timer = setTimeout(() => finish(() => reject(noAnswer(resolver, timeoutMs))), timeoutMs);
    socket.on('error', (error) => finish(() => reject(error)));
    // A connected socket receives datagrams of the resolver only.
    socket.connect(resolver.port, resolver.address, () => {
      if (!isDone) socket.send(message);
    });
    socket.on('message', (response) => {
      if (isResponseTo(message, response)) finish(() => resolve(response));
    });
  });
}

function askByTcp(resolver: Resolver, message: Buffer, timeoutMs: number): Promise<Buffer> {
  return new Promise((resolve, reject) => {
    const socket = connect({ host: resolver.address, port: resolver.port });
    let received: Buffer = Buffer.alloc(0);
    const finish = (act: () => void): void => {
      clearTimeout(timer);
      socket.destroy();
      act();
    };
    const timer = setTimeout(() => finish(() => reject(noAnswer(resolver, timeoutMs))), timeoutMs);
    const length = Buffer.alloc(2);
    length.writeUInt16BE(message.length, 0);
    socket.on('error', (error) => finish(() => reject(error)));
    socket.on('close', () => finish(() => reject(noAnswer(resolver, timeoutMs))));
    socket.write(Buffer.concat([length, message]));
    socket.on('data', (data: Buffer) => {
      received = Buffer.concat([received, data]);
      if (received.length < 2) return;
      const end = 2 + received.readUInt16BE(0);
      if (received.length < end) return;
      const response = received.subarray(2, end);
      finish(() =>
        isResponseTo(message, response) ? resolve(response) : reject(noAnswer(resolver, timeoutMs)),
      );
    });
  });
}

/** Returns true when a message is a response with the id and the question of `message`. */
function isResponseTo(message: Buffer, response: Buffer): boolean {
  if (response.length < 12 || ((response[2] ?? 0) & 0x80) === 0) return false;
  if (response.readUInt16BE(0) !== message.readUInt16BE(0)) return false;
  const hasQuestion = response.readUInt16BE(4) === 1;
  const end = questionEndOf(message);
  const question = (from: Buffer): string => from.toString('latin1', 12, end).toLowerCase();
  return hasQuestion && response.length >= end && question(response) === question(message);
}

function questionEndOf(message: Buffer): number {
  let offset = 12;
  while ((message[offset] ?? 0) !== 0) offset += (message[offset] ?? 0) + 1;
  return offset + 5;
}

function noAnswer({ address, port }: Resolver, timeoutMs: number): Error {
  return new Error(`the resolver ${address}:${port} did not answer within ${timeoutMs} ms`);
}
