import type { Duplex } from 'node:stream';
import {
  toSingleInput,
  writeWithBackpressure,
  type ExecInput,
  type ExecRequest,
} from '@cloudless/runtime';
import { encodeDataFrame } from './spdy.js';

/** Largest data frame, so that one write does not fill the connection for long. */
const CHUNK_BYTES = 32 * 1024;
/** End-of-file character (Ctrl-D), which ends the input of a terminal. */
const END_OF_FILE = new Uint8Array([4]);

/**
 * Sends the input of a command: data, terminal sizes and the end. Waits while the connection is
 * full.
 */
export class ExecInputSender {
  /** The error of the caller's input or of a write; undefined without an error. */
  failure: { readonly reason: unknown } | undefined;
  /** True when the caller has sent a terminal size. */
  wasResized = false;
  private readonly items: AsyncIterator<ExecInput> | undefined;
  private isEndSent = false;
  private isStopped = false;

  constructor(private readonly request: ExecRequest) {
    const { stdin, input } = request;
    const source = input ?? (stdin === undefined ? undefined : toSingleInput(stdin));
    this.items = source?.[Symbol.asyncIterator]();
  }

  /** True when the request has input, even an empty one. */
  get hasInput(): boolean {
    return this.items !== undefined;
  }

  /**
   * Sends until the input ends, {@link ExecInputSender.stop} is called, or the connection is
   * closed. On an error, sets `failure` and closes the connection. Call it once.
   * @param resizeStreamId - Stream for terminal sizes; undefined for a command without a terminal,
   *   whose sizes are ignored.
   */
  async send(
    socket: Duplex,
    stdinStreamId: number,
    resizeStreamId: number | undefined,
  ): Promise<void> {
    const { items } = this;
    if (items === undefined) return;
    try {
      for (;;) {
        const item = await items.next();
        if (this.isStopped || socket.destroyed) return;
        if (item.done === true) break;
        if (item.value.kind === 'resize') {
          this.wasResized = true;
          if (resizeStreamId !== undefined)
            await writeWithBackpressure(socket, encodeResizeFrame(resizeStreamId, item.value));
        } else if (item.value.kind === 'end') await this.sendEnd(socket, stdinStreamId);
        else await this.sendData(socket, stdinStreamId, item.value.data);
      }
      await this.sendEnd(socket, stdinStreamId);
    } catch (reason) {
      this.failure = { reason };
      socket.destroy();
    }
  }

  /** Sends no further input, and ends the iteration of the caller's input. */
  stop(): void {
    this.isStopped = true;
    void this.items?.return?.().catch(() => undefined);
  }

  private async sendData(socket: Duplex, streamId: number, data: Uint8Array): Promise<void> {
    for (let start = 0; start < data.length; start += CHUNK_BYTES) {
      await writeWithBackpressure(
        socket,
        encodeDataFrame(streamId, data.subarray(start, start + CHUNK_BYTES)),
      );
    }
  }

  /** Sends the end of the input once: a terminal would treat a second end as another Ctrl-D. */
  private async sendEnd(socket: Duplex, streamId: number): Promise<void> {
    if (this.isEndSent) return;
    this.isEndSent = true;
    const isTerminal = this.request.tty !== undefined;
    await writeWithBackpressure(
      socket,
      isTerminal
        ? encodeDataFrame(streamId, END_OF_FILE)
        : encodeDataFrame(streamId, new Uint8Array(0), true),
    );
  }
}

/** Encodes a terminal size, in characters, for the resize stream. */
export function encodeResizeFrame(
  streamId: number,
  { columns, rows }: { readonly columns: number; readonly rows: number },
): Buffer {
  return encodeDataFrame(
    streamId,
    new TextEncoder().encode(JSON.stringify({ Width: columns, Height: rows })),
  );
}
