import { constants } from 'node:http2';
import type { Clock, Log, Timer } from '@cloudless/base';
import { Code, ConnectError } from '@connectrpc/connect';
import type { HeldBytes } from './byte-budget.js';
import type { CallControl } from './call-limiter.js';
import type { AnyRequest, AnyResponse } from './http-types.js';

export interface AnswerPacerSettings {
  readonly clock: Clock;
  readonly log: Log;
  /** Longest time for which a client may read nothing. */
  readonly readerStallMs: number;
}

/**
 * Step in which progress is measured. A client that reads 64 KiB in each timeout is slow, but is
 * not aborted.
 */
const PIECE_BYTES = 64 * 1024;

export interface PacedCall {
  readonly rpc: string;
  readonly connectionId: string | undefined;
  readonly request: AnyRequest;
  readonly response: AnyResponse;
  readonly control: CallControl;
  readonly unread: HeldBytes;
}

/**
 * Applies the slow-reader timeout to responses. Node holds one message in memory for each unread
 * stream, without a time limit. A client that reads nothing for `slowReaderTimeoutMs` has its call
 * ended, with an error that it sees when it reads on. After the same time again the call is reset.
 */
export class AnswerPacer {
  private cutCount = 0;

  constructor(private readonly settings: AnswerPacerSettings) {}

  /** Calls ended since the start because the client did not read. */
  get stalled(): number {
    return this.cutCount;
  }

  /** Passes a response body on in pieces, at the speed of its reader. */
  async *pace(body: AsyncIterable<Uint8Array>, call: PacedCall): AsyncIterable<Uint8Array> {
    const { unread } = call;
    let watch: Timer | undefined;
    call.response.once('close', () => {
      watch?.cancel();
      unread.release();
    });
    const expectProgress = (): void => {
      watch?.cancel();
      if (!isClosed(call)) watch = this.watchFor(call, (next) => (watch = next));
    };
    let held = 0;
    for await (const chunk of body) {
      unread.add(chunk.byteLength - held); // the previous chunk has been read
      held = chunk.byteLength;
      for (let from = 0; from < chunk.byteLength; from += PIECE_BYTES) {
        expectProgress();
        yield chunk.subarray(from, from + PIECE_BYTES);
        watch?.cancel();
      }
    }
    // Node holds the last bytes until the client reads them.
    expectProgress();
  }

  private watchFor(call: PacedCall, then: (next: Timer) => void): Timer {
    const { clock, log, readerStallMs } = this.settings;
    const seconds = readerStallMs / 1_000;
    return clock.setTimer(readerStallMs, () => {
      this.cutCount += 1;
      log.warn('call ended: its client did not read the response', {
        rpc: call.rpc,
        connectionId: call.connectionId,
      });
      call.control.end(
        new ConnectError(
          `the response was not read for ${seconds} s; read it while it arrives, or ask for less`,
          Code.ResourceExhausted,
        ),
      );
      then(clock.setTimer(readerStallMs, () => cut(call)));
    });
  }
}

/**
 * Ends a call at once, without an error message: in HTTP/2 with the reset code ENHANCE_YOUR_CALM,
 * which clients report as RESOURCE_EXHAUSTED.
 */
export function cut({ request, response }: Pick<PacedCall, 'request' | 'response'>): void {
  if ('stream' in request) request.stream.close(constants.NGHTTP2_ENHANCE_YOUR_CALM);
  else request.socket.destroy();
  response.destroy();
}

function isClosed({ request, response }: PacedCall): boolean {
  return 'stream' in request
    ? request.stream.closed || request.stream.destroyed
    : response.destroyed;
}
