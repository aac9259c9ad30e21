import type { Duplex } from 'node:stream';
import { wholeInput, writeInTurn, type ExecInput, type ExecRequest } from '@cloudless/runtime';
import { dataFrame } from './spdy.js';

const CHUNK_BYTES = 32 * 1024;
/** What the end of a terminal's input types: the end-of-file character. */
const END_OF_FILE = new Uint8Array([4]);

/** Sends the input of a command as fast as it is taken. */
export class ExecInputSender {
  /** The caller's side failed. */
  failure: { readonly reason: unknown } | undefined;
  /** The caller sent a size of its own. */
  wasResized = false;
  private readonly items: AsyncIterator<ExecInput> | undefined;
  private ended = false;
  private left = false;

  constructor(private readonly request: ExecRequest) {
    const { stdin, input } = request;
    const source = input ?? (stdin === undefined ? undefined : wholeInput(stdin));
    this.items = source?.[Symbol.asyncIterator]();
  }

  get isThere(): boolean {
    return this.items !== undefined;
  }

  /**
   * Sends until the input or the command has ended. @param resizeStreamId - Where sizes of a
   * terminal go.
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
        if (this.left || socket.destroyed) return;
        if (item.done === true) break;
        if (item.value.kind === 'resize') {
          this.wasResized = true;
          if (resizeStreamId !== undefined)
            await writeInTurn(socket, resizeFrame(resizeStreamId, item.value));
        } else if (item.value.kind === 'end') await this.end(socket, stdinStreamId);
        else await this.data(socket, stdinStreamId, item.value.data);
      }
      await this.end(socket, stdinStreamId);
    } catch (reason) {
      this.failure = { reason };
      socket.destroy();
    }
  }

  /** Nobody reads any more. */
  leave(): void {
    this.left = true;
    void this.items?.return?.().catch(() => undefined);
  }

  private async data(socket: Duplex, streamId: number, data: Uint8Array): Promise<void> {
    for (let start = 0; start < data.length; start += CHUNK_BYTES) {
      await writeInTurn(socket, dataFrame(streamId, data.subarray(start, start + CHUNK_BYTES)));
    }
  }

  /** Once: a terminal would take a second one for another end. */
  private async end(socket: Duplex, streamId: number): Promise<void> {
    if (this.ended) return;
    this.ended = true;
    const isTerminal = this.request.tty !== undefined;
    await writeInTurn(
      socket,
      isTerminal ? dataFrame(streamId, END_OF_FILE) : dataFrame(streamId, new Uint8Array(0), true),
    );
  }
}

/** A size for the resize stream. */
export function resizeFrame(
  streamId: number,
  { columns, rows }: { readonly columns: number; readonly rows: number },
): Buffer {
  return dataFrame(
    streamId,
    new TextEncoder().encode(JSON.stringify({ Width: columns, Height: rows })),
  );
}
