import {
  toSingleInput,
  writeWithBackpressure,
  type ExecInput,
  type ExecRequest,
  type FrameSink,
} from '@cloudless/runtime';
import { encodeFrame, encodeResize } from '../wire/frames.js';

/** Largest `stdin` frame: small against the window, so that the window opens in steps. */
const INPUT_CHUNK_BYTES = 64 * 1024;
/**
 * Bytes of input that are read ahead of the window. What was typed for a program that reads nothing
 * is less, so a change of the terminal size behind it is still read.
 */
const MAX_WAITING_BYTES = 64 * 1024;

/** The connection to the supervisor. */
export interface InputSocket extends FrameSink {
  destroy(): unknown;
}

/**
 * Sends the input of a command, at most as far ahead as the window of the supervisor allows. A
 * change of the terminal size needs no window: it is sent at once, before input that waits.
 */
export class WindowedInputSender {
  /** Set when the input of the caller failed. */
  failure: { readonly reason: unknown } | undefined;
  private readonly items: AsyncIterator<ExecInput> | undefined;
  /** Bytes that may still be sent; infinite for a supervisor without flow control. */
  private window: number;
  /** Input that was read from the caller and waits for the window, oldest first. */
  private readonly waiting: (Uint8Array | 'end')[] = [];
  private waitingBytes = 0;
  private hasEnd = false;
  /** Wakes the sender loop. */
  private wakeSender: (() => void) | undefined;
  /** Wakes the reader loop. */
  private wakeReader: (() => void) | undefined;

  /** @param isWindowed - False: the supervisor has no flow control. */
  constructor(
    private readonly socket: InputSocket,
    { stdin, input }: Pick<ExecRequest, 'stdin' | 'input'>,
    isWindowed: boolean,
  ) {
    this.window = isWindowed ? 0 : Number.POSITIVE_INFINITY;
    const source = input ?? (stdin === undefined ? undefined : toSingleInput(stdin));
    this.items = source?.[Symbol.asyncIterator]();
  }

  /** False when the request has no input. */
  get hasInput(): boolean {
    return this.items !== undefined;
  }

  /** Sends all input. Sets `failure` and closes the socket when the input of the caller fails. */
  async send(): Promise<void> {
    const { items, socket } = this;
    if (items === undefined) return;
    try {
      await Promise.all([this.readItems(items), this.sendWaiting()]);
    } catch (reason) {
      this.failure = { reason };
      socket.destroy();
      this.stop();
    }
  }

  /** Allows `bytes` more bytes to be sent. */
  addWindow(bytes: number): void {
    this.window += bytes;
    this.wakeSender?.();
  }

  /** Stops sending, because the command or the connection has ended. */
  stop(): void {
    this.wakeSender?.();
    this.wakeReader?.();
    void this.items?.return?.().catch(() => undefined);
  }

  /** Reads the input of the caller while little of it waits. Sends changes of the size at once. */
  private async readItems(items: AsyncIterator<ExecInput>): Promise<void> {
    while (!this.socket.destroyed) {
      const item = await items.next();
      if (this.socket.destroyed) return;
      if (item.done === true) return this.putWaiting('end');
      if (item.value.kind === 'resize')
        await writeWithBackpressure(this.socket, encodeResize(item.value));
      else this.putWaiting(item.value.kind === 'end' ? 'end' : item.value.data);
      while (this.waitingBytes >= MAX_WAITING_BYTES && !this.socket.destroyed)
        await new Promise<void>((resolve) => (this.wakeReader = resolve));
    }
  }

  /**
   * Drops empty input, which would fill `waiting` without a limit, and everything after the end: a
   * terminal would take a second end as Ctrl-D.
   */
  private putWaiting(item: Uint8Array | 'end'): void {
    if (this.hasEnd || item.length === 0) return;
    this.waiting.push(item);
    if (item === 'end') this.hasEnd = true;
    else this.waitingBytes += item.length;
    this.wakeSender?.();
  }

  /** Sends the waiting input in order, until its end or until the connection has closed. */
  private async sendWaiting(): Promise<void> {
    while (!this.socket.destroyed) {
      const item = this.waiting[0];
      if (item === 'end') {
        await writeWithBackpressure(this.socket, encodeFrame('stdinEnd'));
        return;
      }
      if (item === undefined || this.window <= 0) {
        await new Promise<void>((resolve) => (this.wakeSender = resolve));
        continue;
      }
      const chunk = item.subarray(0, INPUT_CHUNK_BYTES);
      const rest = item.subarray(chunk.length);
      if (rest.length > 0) this.waiting[0] = rest;
      else this.waiting.shift();
      this.window -= chunk.length;
      this.waitingBytes -= chunk.length;
      await writeWithBackpressure(this.socket, encodeFrame('stdin', chunk));
      if (this.waitingBytes < MAX_WAITING_BYTES) this.wakeReader?.();
    }
  }
}
