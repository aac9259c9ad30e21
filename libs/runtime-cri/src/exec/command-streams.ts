import type { Duplex } from 'node:stream';
import { CloudlessError, sleep, type Clock } from '@cloudless/base';
import { writeWithBackpressure, type ExecEvent, type ExecRequest } from '@cloudless/runtime';
import { encodeResizeFrame, type ExecInputSender } from './exec-input.js';
import { parseExitCode } from './exit-status.js';
import { encodePingFrame, SpdyParser, SpdyStreams, type SpdyFrame } from './spdy.js';

/** Delays between repeated sends of the first size of a terminal. */
const SIZE_DELAYS_MS = [20, 30, 50, 100, 200, 400, 800];
/** Longest accepted status; real ones are much smaller. */
const MAX_STATUS_BYTES = 64 * 1024;
/** Bytes of unread output above which reading from the connection pauses. */
const MAX_HELD_BYTES = 1024 * 1024;

export interface CommandStreamsOptions {
  /** The upgraded connection, and the bytes that arrived with the upgrade. */
  readonly socket: Duplex;
  readonly head: Uint8Array;
  readonly input: ExecInputSender;
  readonly tty: ExecRequest['tty'];
  readonly clock: Clock;
}

/**
 * The streams of one remote command over one connection: input, output and exit status.
 *
 * Frames are parsed as they arrive, not when a reader asks for them. A container runtime closes the
 * connection as soon as the command has ended. If the command left input unread, the kernel then
 * resets the connection, and Node.js drops everything that no listener has received yet, the exit
 * code included.
 */
export class CommandStreams {
  private readonly streams = new SpdyStreams();
  private readonly parser = new SpdyParser();
  private readonly names = new Map<number, string>();
  private readonly queue: ExecEvent[] = [];
  private heldBytes = 0;
  private status = '';
  private exit: (() => ExecEvent) | undefined;
  private connectionEnd: { readonly cause?: unknown } | undefined;
  private wake = (): void => undefined;

  constructor(private readonly options: CommandStreamsOptions) {
    const { socket } = options;
    socket.on('error', (cause: unknown) => this.onConnectionEnded({ cause }));
    socket.on('end', () => this.onConnectionEnded({}));
    socket.on('close', () => this.onConnectionEnded({}));
  }

  /** Whether the container runtime has sent the exit status. */
  get hasEnded(): boolean {
    return this.exit !== undefined;
  }

  /** Whether the connection is closed. */
  get isClosed(): boolean {
    return this.options.socket.destroyed;
  }

  /**
   * Opens all streams, after which the container runtime starts the command, and begins to send the
   * input.
   */
  async open(): Promise<void> {
    const { socket, head, input, tty } = this.options;
    this.onData(head);
    socket.on('data', (chunk: Uint8Array) => this.onData(chunk));
    await this.openStream('error');
    const stdin = input.hasInput ? await this.openStream('stdin') : undefined;
    await this.openStream('stdout');
    if (tty === undefined) await this.openStream('stderr');
    const resize = tty === undefined ? undefined : await this.openStream('resize');
    if (resize !== undefined && tty !== undefined)
      void this.resendSize(encodeResizeFrame(resize, tty));
    if (stdin !== undefined) void input.send(socket, stdin, resize);
  }

  /**
   * Yields the output and the exit of the command. Call it once.
   * @throws kind `unavailable` when the connection ends without an exit status; the errors of
   *   {@link parseExitCode} when the command did not run.
   */
  async *events(): AsyncGenerator<ExecEvent> {
    for (;;) {
      const event = this.queue.shift();
      if (event !== undefined) {
        this.releaseHeldBytes(event);
        yield event;
      } else if (this.exit !== undefined) {
        yield this.exit();
        return;
      } else if (this.connectionEnd !== undefined) {
        throw createConnectionEndedError(this.connectionEnd.cause);
      } else {
        await new Promise<void>((resolve) => (this.wake = resolve));
      }
    }
  }

  /** Ends the connection. */
  close(): void {
    this.options.socket.destroy();
  }

  private async openStream(name: string): Promise<number> {
    const { streamId, frame } = this.streams.open('streamtype', name);
    this.names.set(streamId, name);
    await writeWithBackpressure(this.options.socket, frame);
    return streamId;
  }

  /**
   * Repeats the first size: container runtimes drop a size that arrives before the terminal exists,
   * without an error.
   */
  private async resendSize(frame: Buffer): Promise<void> {
    const { socket, input, clock } = this.options;
    for (const delayMs of SIZE_DELAYS_MS) {
      if (this.hasEnded || input.wasResized || socket.destroyed) return;
      await writeWithBackpressure(socket, frame);
      await sleep(clock, delayMs);
    }
  }

  private onData(chunk: Uint8Array): void {
    for (const frame of this.parser.feed(chunk)) this.onFrame(frame);
    if (this.heldBytes > MAX_HELD_BYTES) this.options.socket.pause();
    this.wake();
  }

  private onFrame(frame: SpdyFrame): void {
    const { socket, input } = this.options;
    if (frame.kind === 'ping') socket.write(encodePingFrame(frame.id));
    const name = 'streamId' in frame ? this.names.get(frame.streamId) : undefined;
    // the command reads no more input
    if (frame.kind === 'reset' && name === 'stdin') input.stop();
    if (frame.kind !== 'data' || this.exit !== undefined) return;
    if (name === 'stdout' || name === 'stderr') {
      this.heldBytes += frame.data.length;
      this.queue.push({ kind: 'output', stream: name, data: frame.data });
    }
    if (name !== 'error') return;
    this.status = (this.status + new TextDecoder().decode(frame.data)).slice(0, MAX_STATUS_BYTES);
    if (isCompleteJson(this.status)) this.recordExit();
  }

  /**
   * Defers the parsing of the status to the reader of the events, so that the reader gets the error
   * for a malformed status.
   */
  private recordExit(): void {
    const { status } = this;
    this.exit = () => ({ kind: 'exited', exitCode: parseExitCode(status) });
  }

  private releaseHeldBytes(event: ExecEvent): void {
    if (event.kind !== 'output') return;
    this.heldBytes -= event.data.length;
    const { socket } = this.options;
    if (this.heldBytes <= MAX_HELD_BYTES / 2 && socket.isPaused()) socket.resume();
  }

  /**
   * Handles the end of the connection. An incomplete status becomes an error with its text for the
   * reader of the events.
   */
  private onConnectionEnded(how: { readonly cause?: unknown }): void {
    this.connectionEnd ??= how;
    if (this.exit === undefined && this.status !== '') this.recordExit();
    this.wake();
  }
}

function createConnectionEndedError(cause?: unknown): CloudlessError {
  const options = cause === undefined ? {} : { cause };
  return new CloudlessError(
    'unavailable',
    'exec: the container runtime closed the connection before the command ended',
    options,
  );
}

function isCompleteJson(json: string): boolean {
  try {
    JSON.parse(json);
    return true;
  } catch {
    return false;
  }
}
