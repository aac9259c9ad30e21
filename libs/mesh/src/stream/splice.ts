import { Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import { errorCodeOf } from '@cloudless/base';
import { batchWrites } from './batch-writes.js';

/** Bytes that wait to be written above which the other side is not read. */
const MAX_WAITING_BYTES = 64 * 1024;

/** Ends a stream at once: a TCP connection with RST, a stream between proxies with a reset. */
export function resetStream(stream: Duplex): void {
  if (stream.destroyed) return;
  if (stream instanceof Socket && !stream.connecting) stream.resetAndDestroy();
  else stream.destroy();
}

/** Result of a regular end. */
export const CLOSED = 'closed';

/**
 * Carries bytes between two streams in both directions. The end of one direction is passed on and
 * leaves the other direction open; an error or an early end of one stream resets the other. A stream
 * is read only as fast as the other is written, so that at most about 128 KiB wait in each direction:
 * {@link MAX_WAITING_BYTES} and one read.
 */
export class Splice {
  /** Bytes from the client. */
  sentBytes = 0;
  /** Bytes to the client. */
  receivedBytes = 0;
  private openCount = 2;
  private failure: string | undefined;

  /**
   * @param client - Begins paused or not.
   * @param onEnd - Called once with the result, when both streams are closed.
   */
  constructor(
    private readonly client: Duplex,
    private readonly endpoint: Duplex,
    private readonly onEnd: (result: string) => void,
  ) {
    client.on('data', (chunk: Buffer) => {
      this.sentBytes += chunk.length;
      pass(chunk, client, endpoint);
    });
    endpoint.on('data', (chunk: Buffer) => {
      this.receivedBytes += chunk.length;
      pass(chunk, endpoint, client);
    });
    this.watch(client, endpoint, 'the client');
    this.watch(endpoint, client, 'the endpoint');
    client.resume();
    endpoint.resume();
  }

  /** Ends both streams at once. */
  reset(reason: string): void {
    this.failure ??= reason;
    resetStream(this.client);
    resetStream(this.endpoint);
  }

  private watch(from: Duplex, to: Duplex, name: string): void {
    from.on('drain', () => to.resume());
    from.on('end', () => to.end());
    from.on('error', (reason) => {
      this.failure ??= `${name}: ${errorCodeOf(reason) ?? reason.message}`;
    });
    const onClose = (): void => {
      if (!from.readableEnded || !from.writableFinished) this.reset(`${name} closed early`);
      this.openCount -= 1;
      if (this.openCount === 0) this.onEnd(this.failure ?? CLOSED);
    };
    // A stream may have closed while the other was connected.
    if (from.closed) queueMicrotask(onClose);
    else from.once('close', onClose);
  }
}

/** Writes bytes of one stream to the other, and pauses the reading while too much waits there. */
function pass(chunk: Buffer, from: Duplex, to: Duplex): void {
  // A socket reads 64 KiB at a time; other streams deliver smaller pieces.
  if (!(from instanceof Socket)) batchWrites(to);
  if (!to.write(chunk) && to.writableLength > MAX_WAITING_BYTES) from.pause();
}
