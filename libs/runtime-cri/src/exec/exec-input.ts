import type { Duplex } from 'node:stream';
import {
  toSingleInput,
  writeWithBackpressure,
  type ExecInput,
  type ExecRequest,
} from '@cloudless/runtime';
import { encodeDataFrame } from './spdy.js';

const CHUNK_BYTES = 32 * 1024;
/** End-of-file character (Ctrl-D), which ends the input of a terminal. */
const END_OF_FILE = new Uint8Array([4]);

/** Sends the input of a command as fast as the connection accepts it. */
export class ExecInputSender {
  /** Set when the input of the caller failed. */
  failure: { readonly reason: unknown } | undefined;
  /** Whether the caller has sent a terminal size. */
  wasResized = false;
  private readonly items: AsyncIterator<ExecInput> | undefined;
  private isEndSent = false;
  private isStopped = false;

  constructor(private readonly request: ExecRequest) {
    const { stdin, input } = request;
    const source = input ?? (stdin === undefined ? undefined : toSingleInput(stdin));
    this.items = source?.[Symbol.asyncIterator]();
  }

  get hasInput(): boolean {
    return this.items !== undefined;
  }

  /**
   * Sends until the input or the command has ended.
   * @param resizeStreamId - Stream for sizes of the terminal.
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

  /** Ends sending: the command or the connection has ended. */
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

  /** Sends the end of the input once: a terminal would take a second one as another Ctrl-D. */
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

/** Encodes a terminal size for the resize stream. */
export function encodeResizeFrame(
  streamId: number,
  { columns, rows }: { readonly columns: number; readonly rows: number },
): Buffer {
  return encodeDataFrame(
    streamId,
    new TextEncoder().encode(JSON.stringify({ Width: columns, Height: rows })),
  );
}
