import type { Duplex } from 'node:stream';
import { CloudlessError, sleep, type Clock } from '@cloudless/base';
import { writeWithBackpressure, type ExecEvent, type ExecRequest } from '@cloudless/runtime';
import { encodeResizeFrame, type ExecInputSender } from './exec-input.js';
import { parseExitCode } from './exit-status.js';
import { encodePingFrame, SpdyParser, SpdyStreams, type SpdyFrame } from './spdy.js';

/**
 * Delays after each send of the first terminal size, together 1.6 s: the terminal may not exist yet
 * when the size arrives.
 */
const SIZE_DELAYS_MS = [20, 30, 50, 100, 200, 400, 800];
/** Largest exit status that is kept. Real statuses have a few hundred bytes. */
const MAX_STATUS_BYTES = 64 * 1024;
/** Bytes of unread output above which reading from the connection pauses, until half are read. */
const MAX_HELD_BYTES = 1024 * 1024;

/** The connection and the command of {@link CommandStreams}. */
export interface CommandStreamsOptions {
  /** The upgraded connection. */
  readonly socket: Duplex;
  /** Bytes that arrived together with the response to the upgrade. */
  readonly head: Uint8Array;
  readonly input: ExecInputSender;
  /** First size of the terminal; undefined for a command without a terminal. */
  readonly tty: ExecRequest['tty'];
  readonly clock: Clock;
}

/**
 * The streams of one remote command over one connection: input, output and exit status.
 *
 * Frames are parsed as they arrive, not when the caller reads the next event. A container runtime
 * closes the connection as soon as the command has ended. When the command left input unread, the
 * kernel then resets the connection, and Node.js drops all data that no listener has received yet,
 * also the exit status.
 */
export class CommandStreams {
  private readonly streams = new SpdyStreams();
  private readonly parser = new SpdyParser();
  /** Names of the opened streams by their id. */
  private readonly names = new Map<number, string>();
  /** Output that the caller has not read yet. */
  private readonly queue: ExecEvent[] = [];
  /** Bytes of output in the queue. */
  private heldBytes = 0;
  /** Text of the exit status, as far as received. */
  private status = '';
  /** Parses the complete exit status; undefined until then. */
  private exit: (() => ExecEvent) | undefined;
  private connectionEnd: { readonly cause?: unknown } | undefined;
  /** Resumes the reader of the events. */
  private wake = (): void => undefined;

  constructor(private readonly options: CommandStreamsOptions) {
    const { socket } = options;
    socket.on('error', (cause: unknown) => this.onConnectionEnded({ cause }));
    socket.on('end', () => this.onConnectionEnded({}));
    socket.on('close', () => this.onConnectionEnded({}));
  }

  /** True when the exit status has been received. */
  get hasEnded(): boolean {
    return this.exit !== undefined;
  }

  /** True when the connection is closed. */
  get isClosed(): boolean {
    return this.options.socket.destroyed;
  }

  /**
   * Opens all streams and begins to send the input. The container runtime starts the command when
   * all streams are open.
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

  /** Ends the connection. The container runtime does not end the command by itself. */
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
   * Sends the first terminal size several times: container runtimes drop a size that arrives before
   * the terminal exists, without an error. Ends when the caller sends another size.
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
    // The command reads no more input.
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
   * Records the exit. The status is parsed only when the caller reads the exit, so that the caller
   * gets the error for a malformed status.
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
   * Handles the end of the connection. When only a part of the status has arrived, the reader of
   * the events gets an error with that part.
   */
  private onConnectionEnded(end: { readonly cause?: unknown }): void {
    this.connectionEnd ??= end;
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
