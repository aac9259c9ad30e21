import { constants } from 'node:http2';
import type { Clock, Log, Timer } from '@cloudless/base';
import { Code, ConnectError } from '@connectrpc/connect';
import type { HeldBytes } from './byte-budget.js';
import type { CallControl } from './call-limiter.js';
import type { AnyRequest, AnyResponse } from './http-types.js';

/** What {@link AnswerPacer} needs. */
export interface AnswerPacerSettings {
  readonly clock: Clock;
  readonly log: Log;
  /** How long a client may take for one piece. */
  readonly readerStallMs: number;
}

/**
 * Progress is seen in steps of this size; so a client that reads 64 KiB in the time it has is slow,
 * but not cut.
 */
const PIECE_BYTES = 64 * 1024;

/** The call whose answer is paced. */
export interface PacedCall {
  readonly rpc: string;
  readonly connectionId: string | undefined;
  readonly request: AnyRequest;
  readonly response: AnyResponse;
  readonly control: CallControl;
  readonly unread: HeldBytes;
}

/**
 * Watches that answers are read. Node holds a message at a time for each stream that is not read,
 * and for ever: so a client that takes nothing for `readerStallMs` has its call ended, with an
 * error it sees when it reads on; after the same time again it is cut.
 */
export class AnswerPacer {
  private cutCount = 0;

  constructor(private readonly settings: AnswerPacerSettings) {}

  /** Calls ended since the start because their answer was not read. */
  get stalled(): number {
    return this.cutCount;
  }

  /** Hands on a body in pieces, as fast as they are read. */
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
      unread.add(chunk.byteLength - held); // what came before has been taken
      held = chunk.byteLength;
      for (let from = 0; from < chunk.byteLength; from += PIECE_BYTES) {
        expectProgress();
        yield chunk.subarray(from, from + PIECE_BYTES);
        watch?.cancel();
      }
    }
    // The last bytes, which Node holds until they are read.
    expectProgress();
  }

  private watchFor(call: PacedCall, then: (next: Timer) => void): Timer {
    const { clock, log, readerStallMs } = this.settings;
    const seconds = readerStallMs / 1_000;
    return clock.setTimer(readerStallMs, () => {
      this.cutCount += 1;
      log.warn('call ended because its answer was not read', {
        rpc: call.rpc,
        connectionId: call.connectionId,
      });
      call.control.end(
        new ConnectError(
          `the answer was not read for ${seconds} s; read as it comes, or ask for less`,
          Code.ResourceExhausted,
        ),
      );
      then(clock.setTimer(readerStallMs, () => cut(call)));
    });
  }
}

/** Ends a call without another word: in HTTP/2 the client reads RESOURCE_EXHAUSTED from it. */
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
