import type { Duplex } from 'node:stream';
import { CloudlessError, sleep, type Clock } from '@cloudless/base';
import { writeInTurn, type ExecEvent, type ExecRequest } from '@cloudless/runtime';
import { resizeFrame, type ExecInputSender } from './exec-input.js';
import { exitCodeFrom } from './exec-outcome.js';
import { pingFrame, SpdyParser, SpdyStreams, type SpdyFrame } from './spdy.js';

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
  private readonly waiting: ExecEvent[] = [];
  private heldBytes = 0;
  private status = '';
  private exit: (() => ExecEvent) | undefined;
  private over: { readonly cause?: unknown } | undefined;
  private wake = (): void => undefined;

  constructor(private readonly options: CommandStreamsOptions) {
    const { socket } = options;
    socket.on('error', (cause: unknown) => this.end({ cause }));
    socket.on('end', () => this.end({}));
    socket.on('close', () => this.end({}));
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
    this.take(head);
    socket.on('data', (chunk: Uint8Array) => this.take(chunk));
    await this.openOne('error');
    const stdin = input.isThere ? await this.openOne('stdin') : undefined;
    await this.openOne('stdout');
    if (tty === undefined) await this.openOne('stderr');
    const resize = tty === undefined ? undefined : await this.openOne('resize');
    if (resize !== undefined && tty !== undefined) void this.keepSize(resizeFrame(resize, tty));
    if (stdin !== undefined) void input.send(socket, stdin, resize);
  }

  /**
   * Yields the output and the exit of the command. Call it once.
   * @throws kind `unavailable` when the connection ends without an exit status; the errors of
   *   {@link exitCodeFrom} when the command did not run.
   */
  async *events(): AsyncGenerator<ExecEvent> {
    for (;;) {
      const event = this.waiting.shift();
      if (event !== undefined) {
        this.release(event);
        yield event;
      } else if (this.exit !== undefined) {
        yield this.exit();
        return;
      } else if (this.over !== undefined) {
        throw connectionEnded(this.over.cause);
      } else {
        await new Promise<void>((resolve) => (this.wake = resolve));
      }
    }
  }

  /** Ends the connection. */
  close(): void {
    this.options.socket.destroy();
  }

  private async openOne(name: string): Promise<number> {
    const { streamId, frame } = this.streams.open('streamtype', name);
    this.names.set(streamId, name);
    await writeInTurn(this.options.socket, frame);
    return streamId;
  }

  /**
   * Repeats the first size: container runtimes drop a size that arrives before the terminal exists,
   * without an error.
   */
  private async keepSize(frame: Buffer): Promise<void> {
    const { socket, input, clock } = this.options;
    for (const delayMs of SIZE_DELAYS_MS) {
      if (this.hasEnded || input.wasResized || socket.destroyed) return;
      await writeInTurn(socket, frame);
      await sleep(clock, delayMs);
    }
  }

  private take(chunk: Uint8Array): void {
    for (const frame of this.parser.feed(chunk)) this.takeFrame(frame);
    if (this.heldBytes > MAX_HELD_BYTES) this.options.socket.pause();
    this.wake();
  }

  private takeFrame(frame: SpdyFrame): void {
    const { socket, input } = this.options;
    if (frame.kind === 'ping') socket.write(pingFrame(frame.id));
    const name = 'streamId' in frame ? this.names.get(frame.streamId) : undefined;
    // the command reads no more input
    if (frame.kind === 'reset' && name === 'stdin') input.leave();
    if (frame.kind !== 'data' || this.exit !== undefined) return;
    if (name === 'stdout' || name === 'stderr') {
      this.heldBytes += frame.data.length;
      this.waiting.push({ kind: 'output', stream: name, data: frame.data });
    }
    if (name !== 'error') return;
    this.status = (this.status + new TextDecoder().decode(frame.data)).slice(0, MAX_STATUS_BYTES);
    if (isWhole(this.status)) this.noteExit();
  }

  /**
   * Defers the parsing of the status to the reader of the events, so that the reader gets the error
   * for a malformed status.
   */
  private noteExit(): void {
    const { status } = this;
    this.exit = () => ({ kind: 'exited', exitCode: exitCodeFrom(status) });
  }

  private release(event: ExecEvent): void {
    if (event.kind !== 'output') return;
    this.heldBytes -= event.data.length;
    const { socket } = this.options;
    if (this.heldBytes <= MAX_HELD_BYTES / 2 && socket.isPaused()) socket.resume();
  }

  /**
   * Handles the end of the connection. An incomplete status becomes an error with its text for the
   * reader of the events.
   */
  private end(how: { readonly cause?: unknown }): void {
    this.over ??= how;
    if (this.exit === undefined && this.status !== '') this.noteExit();
    this.wake();
  }
}

function connectionEnded(cause?: unknown): CloudlessError {
  const options = cause === undefined ? {} : { cause };
  return new CloudlessError(
    'unavailable',
    'exec: the container runtime closed the connection before the command ended',
    options,
  );
}

function isWhole(json: string): boolean {
  try {
    JSON.parse(json);
    return true;
  } catch {
    return false;
  }
}
