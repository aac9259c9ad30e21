import type { Duplex } from 'node:stream';
import { CloudlessError, sleep, type Clock } from '@cloudless/base';
import { writeInTurn, type ExecEvent, type ExecRequest } from '@cloudless/runtime';
import { resizeFrame, type ExecInputSender } from './exec-input.js';
import { exitCodeFrom } from './exec-outcome.js';
import { pingFrame, SpdyParser, SpdyStreams, type SpdyFrame } from './spdy.js';

/** Between one sending of a terminal's first size and the next. */
const SIZE_DELAYS_MS = [20, 30, 50, 100, 200, 400, 800];
/** The end of a command is told in far less. */
const MAX_STATUS_BYTES = 64 * 1024;
/** Output that waits for its reader before no more is read from the connection. */
const MAX_HELD_BYTES = 1024 * 1024;

/** Needs of {@link CommandStreams}. */
export interface CommandStreamsOptions {
  /** The upgraded connection, and what came with the upgrade. */
  readonly socket: Duplex;
  readonly head: Uint8Array;
  readonly input: ExecInputSender;
  readonly tty: ExecRequest['tty'];
  readonly clock: Clock;
}

/**
 * The streams of one remote command over one connection: its input, its output, and how it ended.
 *
 * What arrives is taken apart at once, and not when a reader asks for it. A runtime closes the connection as soon as the command
 * has ended; when the command left input unread, the kernel then resets the connection, and Node drops whatever it has read and
 * not handed out: the exit code, too. What was taken apart before survives that.
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

  /** Whether the runtime has told the end of the command. */
  get hasEnded(): boolean {
    return this.exit !== undefined;
  }

  /** Whether the connection is over: nothing more will be told. */
  get isClosed(): boolean {
    return this.options.socket.destroyed;
  }

  /** Opens all streams that the runtime expects, which starts the command, and begins to send its input. */
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
   * What the command writes, and its end. To be read once.
   * @throws kind `unavailable` when the connection ends before the runtime has told the end of the command; as
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

  /** Runtimes lose a size that comes before the terminal is there, and do not tell when it is. The same size again changes nothing. */
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
    if (frame.kind === 'reset' && name === 'stdin') input.leave(); // the command takes no more
    if (frame.kind !== 'data' || this.exit !== undefined) return;
    if (name === 'stdout' || name === 'stderr') {
      this.heldBytes += frame.data.length;
      this.waiting.push({ kind: 'output', stream: name, data: frame.data });
    }
    if (name !== 'error') return;
    this.status = (this.status + new TextDecoder().decode(frame.data)).slice(0, MAX_STATUS_BYTES);
    if (isWhole(this.status)) this.noteExit();
  }

  /** What was told of the end is read by whoever reads the events, and so is the failure to understand it. */
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

  /** Nothing more comes. An end that was told in part is given as it is, and refused with its words where it is read. */
  private end(how: { readonly cause?: unknown }): void {
    this.over ??= how;
    if (this.exit === undefined && this.status !== '') this.noteExit();
    this.wake();
  }
}

function connectionEnded(cause?: unknown): CloudlessError {
  const options = cause === undefined ? {} : { cause };
  return new CloudlessError('unavailable', 'exec: the container runtime ended the connection', options);
}

function isWhole(json: string): boolean {
  try {
    JSON.parse(json);
    return true;
  } catch {
    return false;
  }
}
