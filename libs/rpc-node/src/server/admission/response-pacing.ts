import { constants, type ServerHttp2Stream } from 'node:http2';
import type { Clock, Log, Timer } from '@cloudless/base';
import type { CallCanceller } from '../transport/call-lifetimes.js';
import type { AnyRequest, AnyResponse } from '../transport/http-types.js';
import type { TrackedBytes } from './byte-budget.js';
import type { DirectTarget, DirectWrites } from './direct-writes.js';
import { createError } from './retryable-error.js';

export interface ResponsePacerSettings {
  readonly clock: Clock;
  readonly log: Log;
  /** Longest time for which a client may read nothing, in milliseconds. */
  readonly slowReaderTimeoutMs: number;
}

/**
 * Bytes that a client must read within each slow-reader timeout. A client that reads 64 KiB in each
 * timeout is slow, but its call is not aborted.
 */
const PIECE_BYTES = 64 * 1024;

/** A call whose response {@link ResponsePacer} sends. */
export interface PacedCall {
  readonly rpc: string;
  readonly connectionId: string | undefined;
  readonly request: AnyRequest;
  readonly response: AnyResponse;
  readonly control: CallCanceller;
  /** Counts the bytes that wait for the client. */
  readonly unread: TrackedBytes;
  /** Opened while the body waits for its next chunk; absent: the body alone is written. */
  readonly directWrites?: DirectWrites | undefined;
}

/**
 * Applies the slow-reader timeout to responses. Node holds one message in memory for each unread
 * stream, without a time limit. When a client reads nothing for `slowReaderTimeoutMs`, the pacer
 * ends the call with an error, which the client receives when it reads on. After the same time
 * again, the pacer resets the call.
 */
export class ResponsePacer {
  private slowReaderCount = 0;

  constructor(private readonly settings: ResponsePacerSettings) {}

  /** Calls ended since the start because the client did not read. */
  get slowReaders(): number {
    return this.slowReaderCount;
  }

  /** Passes a response body on in pieces, at the speed of its reader. */
  async *pace(body: AsyncIterable<Uint8Array>, call: PacedCall): AsyncIterable<Uint8Array> {
    const { unread, directWrites } = call;
    let timer: Timer | undefined;
    call.response.once('close', () => {
      timer?.cancel();
      unread.release();
      directWrites?.close();
    });
    const startTimeout = (): void => {
      timer?.cancel();
      if (!isClosed(call)) timer = this.setSlowReaderTimer(call, (next) => (timer = next));
    };
    const chunks = new CountedChunks(call);
    for await (const chunk of body) {
      directWrites?.close();
      chunks.countUnread(chunk.byteLength);
      for (let from = 0; from < chunk.byteLength; from += PIECE_BYTES) {
        startTimeout();
        yield chunk.subarray(from, from + PIECE_BYTES);
        timer?.cancel();
      }
      directWrites?.open(chunks);
    }
    directWrites?.close();
    // Node holds the last bytes until the client reads them, so the timeout runs on
    startTimeout();
  }

  /** @param onNextTimer - Receives the timer of the reset, once the first timer has fired. */
  private setSlowReaderTimer(call: PacedCall, onNextTimer: (next: Timer) => void): Timer {
    const { clock, log, slowReaderTimeoutMs } = this.settings;
    const seconds = slowReaderTimeoutMs / 1_000;
    return clock.setTimer(slowReaderTimeoutMs, () => {
      this.slowReaderCount += 1;
      log.warn('call ended: its client did not read the response', {
        rpc: call.rpc,
        connectionId: call.connectionId,
      });
      call.control.cancel(
        createError(
          'SLOW_READER',
          `the response was not read for ${seconds} s; read it while it arrives, or ask for less`,
        ),
      );
      onNextTimer(clock.setTimer(slowReaderTimeoutMs, () => resetCall(call)));
    });
  }
}

/**
 * Ends a call at once, without an error message: in HTTP/2 with the reset code ENHANCE_YOUR_CALM,
 * which clients report as RESOURCE_EXHAUSTED.
 */
export function resetCall({ request, response }: Pick<PacedCall, 'request' | 'response'>): void {
  if ('stream' in request) request.stream.close(constants.NGHTTP2_ENHANCE_YOUR_CALM);
  else request.socket.destroy();
  response.destroy();
}

/**
 * Counts the chunks of one response as unread bytes, and writes chunks beside the body. Holds the
 * stream itself: an order to an agent is written for each replica, and each object between costs an
 * access to memory that no cache holds.
 */
class CountedChunks implements DirectTarget {
  private readonly unread: TrackedBytes;
  /** Undefined in HTTP/1.1. */
  private readonly stream: ServerHttp2Stream | undefined;
  /** Bytes of the last chunk, the only one that counts: the stream has taken the earlier ones. */
  private heldBytes = 0;

  constructor({ unread, request }: PacedCall) {
    this.unread = unread;
    this.stream = 'stream' in request ? request.stream : undefined;
  }

  /** Counts a chunk instead of the previous one. May end the call. */
  countUnread(bytes: number): void {
    if (bytes !== this.heldBytes) this.unread.add(bytes - this.heldBytes);
    this.heldBytes = bytes;
  }

  /**
   * @returns False when nothing was written: the call has ended, the client has to read first, or
   *   the call uses HTTP/1.1.
   */
  write(bytes: Uint8Array): boolean {
    const { stream } = this;
    if (stream === undefined || !hasRoom(stream, bytes.byteLength)) return false;
    this.countUnread(bytes.byteLength);
    if (stream.closed || stream.destroyed) return false;
    stream.write(bytes);
    return true;
  }
}

/**
 * Returns true when the stream takes the bytes without a wait for the client: a write of the body
 * would return at once, and its slow-reader timeout would be cancelled at once.
 */
function hasRoom(stream: ServerHttp2Stream, bytes: number): boolean {
  return (
    stream.writable &&
    !stream.closed &&
    !stream.writableNeedDrain &&
    stream.writableLength + bytes < stream.writableHighWaterMark
  );
}

function isClosed({ request, response }: PacedCall): boolean {
  return 'stream' in request
    ? request.stream.closed || request.stream.destroyed
    : response.destroyed;
}
