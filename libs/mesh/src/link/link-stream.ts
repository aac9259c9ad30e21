import { Duplex } from 'node:stream';
import {
  encodeHeader,
  encodeText,
  encodeWindow,
  FrameType,
  INITIAL_WINDOW_BYTES,
  MAX_DATA_BYTES,
} from './frames.js';
import type { Refusal } from './open-request.js';

/** Connection that carries a stream. */
export interface StreamCarrier {
  /** Sends one frame. */
  send(header: Buffer, payload?: Buffer): void;
  /** True when little enough waits to be sent. */
  readonly isWritable: boolean;
  /** Runs `action` when {@link isWritable} is true again, or when the connection ends. */
  whenWritable(action: () => void): void;
  /** Asks for `wanted` more bytes of windows in total. Returns how many are granted. */
  reserveWindow(wanted: number): number;
  releaseWindow(bytes: number): void;
  /** Removes a stream that has ended. */
  forget(streamId: number): void;
}

/** Largest window of a stream. At a round trip of 10 ms it carries 100 MB/s. */
const MAX_WINDOW_BYTES = 1024 * 1024;

/** Largest window that a peer may grant. */
const MAX_PEER_WINDOW_BYTES = 2 ** 31 - 1;

/** Error of a stream whose peer reset it, or whose connection ended. */
export class StreamResetError extends Error {
  override readonly name = 'StreamResetError';
  readonly code = 'ECONNRESET';
}

/**
 * A connection of a client within a connection between two proxies. Half-open like TCP: `end` ends
 * one direction, `destroy` resets both.
 */
export class LinkStream extends Duplex {
  /** Bytes that the peer accepts. */
  private sendWindow = INITIAL_WINDOW_BYTES;
  private pending: { chunk: Buffer; done: (error?: Error | null) => void } | undefined;
  /** Bytes that the peer may still send. */
  private receiveWindow = INITIAL_WINDOW_BYTES;
  private windowBytes = INITIAL_WINDOW_BYTES;
  /** Bytes of the window that came from the common budget. */
  private reserved = 0;
  /** True when the connection has too much to send, and calls back. */
  private isWaiting = false;
  private hasSentEnd = false;
  private hasReceivedEnd = false;
  private wasReset = false;

  constructor(
    readonly id: number,
    private readonly carrier: StreamCarrier,
  ) {
    super({ allowHalfOpen: true, highWaterMark: 16 * 1024, decodeStrings: true });
  }

  /** Tells the peer that the endpoint is connected. */
  accept(): void {
    this.carrier.send(encodeHeader(FrameType.accept, this.id, 0));
  }

  /** Tells the peer that the stream is not opened, and ends it. */
  refuse(refusal: Refusal): void {
    this.wasReset = true;
    this.carrier.send(encodeText(FrameType.refuse, this.id, JSON.stringify(refusal)));
    this.destroy();
  }

  /** @returns False when the peer sent more than its window. */
  receiveData(bytes: Buffer): boolean {
    this.receiveWindow -= bytes.length;
    if (this.receiveWindow < 0 || this.hasReceivedEnd) return false;
    // A stream that waits keeps its bytes; a copy of few bytes frees the large buffer around them.
    const isSmall = bytes.length * 4 < bytes.buffer.byteLength;
    const flows = this.readableFlowing === true && this.readableLength === 0;
    this.push(flows || !isSmall ? bytes : Buffer.from(bytes));
    this.grant();
    return true;
  }

  receiveEnd(): void {
    if (this.hasReceivedEnd) return;
    this.hasReceivedEnd = true;
    this.push(null);
  }

  /** @returns False when the peer grants more than a window may be. */
  receiveWindowOf(bytes: number): boolean {
    this.sendWindow += bytes;
    if (this.sendWindow > MAX_PEER_WINDOW_BYTES) return false;
    this.sendPending();
    return true;
  }

  /** Ends the stream because the peer or the connection did. */
  receiveReset(reason: string): void {
    this.wasReset = true;
    this.destroy(new StreamResetError(reason));
  }

  /**
   * Ends the stream because the connection did. A stream that has ended in both directions still
   * delivers the bytes that its reader has not taken.
   */
  receiveConnectionEnd(reason: string): void {
    if (!this.hasSentEnd || !this.hasReceivedEnd) this.receiveReset(reason);
  }

  override _read(): void {
    this.grant();
  }

  override _write(chunk: Buffer, _encoding: string, done: (error?: Error | null) => void): void {
    this.pending = { chunk, done };
    this.sendPending();
  }

  override _final(done: (error?: Error | null) => void): void {
    this.hasSentEnd = true;
    this.carrier.send(encodeHeader(FrameType.end, this.id, 0));
    done();
  }

  override _destroy(error: Error | null, done: (error?: Error | null) => void): void {
    const isComplete = this.hasSentEnd && this.hasReceivedEnd;
    if (!isComplete && !this.wasReset) this.carrier.send(encodeHeader(FrameType.reset, this.id, 0));
    this.carrier.releaseWindow(this.reserved);
    this.reserved = 0;
    this.carrier.forget(this.id);
    const { pending } = this;
    this.pending = undefined;
    pending?.done(error ?? new StreamResetError('the connection was closed'));
    done(error);
  }

  private sendPending(): void {
    const { pending, carrier } = this;
    if (pending === undefined || this.sendWindow <= 0 || this.isWaiting) return;
    if (!carrier.isWritable) {
      this.isWaiting = true;
      return carrier.whenWritable(() => {
        this.isWaiting = false;
        this.sendPending();
      });
    }
    const { chunk, done } = pending;
    const count = Math.min(chunk.length, this.sendWindow, MAX_DATA_BYTES);
    this.sendWindow -= count;
    const isWhole = count === chunk.length;
    this.carrier.send(
      encodeHeader(FrameType.data, this.id, count),
      isWhole ? chunk : chunk.subarray(0, count),
    );
    this.pending = isWhole ? undefined : { chunk: chunk.subarray(count), done };
    if (isWhole) done();
    else this.sendPending();
  }

  /** Grants the peer what the reader has taken, once that is half of the window. */
  private grant(): void {
    if (this.hasReceivedEnd || this.destroyed) return;
    const free = this.windowBytes - this.receiveWindow - this.readableLength;
    if (free * 2 < this.windowBytes) return;
    let bytes = free;
    // The reader keeps up with the whole window: a larger one carries more at a long round trip.
    if (this.readableLength === 0 && this.windowBytes < MAX_WINDOW_BYTES) {
      const more = this.carrier.reserveWindow(this.windowBytes);
      this.reserved += more;
      this.windowBytes += more;
      bytes += more;
    }
    this.receiveWindow += bytes;
    this.carrier.send(encodeWindow(this.id, bytes));
  }
}
