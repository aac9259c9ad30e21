import type { Duplex } from 'node:stream';

/** Streams whose writes wait for the end of this turn of the event loop. */
let waiting: Duplex[] = [];

/**
 * Collects what is written to a stream until all sockets that are ready were read once, and sends it
 * with one system call. Sources of small pieces need that: TLS passes on records of 16 KiB, and many
 * streams of clients share one connection. Call before each write; an ended stream sends at once.
 */
export function batchWrites(stream: Duplex): void {
  if (stream.writableCorked > 0) return;
  stream.cork();
  if (waiting.push(stream) === 1) setImmediate(sendWaiting);
}

function sendWaiting(): void {
  const streams = waiting;
  waiting = [];
  for (const stream of streams) stream.uncork();
}
