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

/** Needs of {@link CommandStreams}. */
export interface CommandStreamsOptions {
  /** The upgraded connection, and what came with the upgrade. */
  readonly socket: Duplex;
  readonly head: Uint8Array;
  readonly input: ExecInputSender;
  readonly tty: ExecRequest['tty'];
  readonly clock: Clock;
}

/** The streams of one remote command over one connection: its input, its output, and how it ended. */
export class CommandStreams {
  private readonly streams = new SpdyStreams();
  private readonly parser = new SpdyParser();
  private readonly names = new Map<number, string>();
  private status = '';
  private hasExited = false;

  constructor(private readonly options: CommandStreamsOptions) {
    options.socket.on('error', () => undefined); // told by the iteration
  }

  /** Whether the runtime has told the end of the command. */
  get hasEnded(): boolean {
    return this.hasExited;
  }

  /** Whether the connection is over: nothing more will be told. */
  get isClosed(): boolean {
    return this.options.socket.destroyed;
  }

  /** Opens all streams that the runtime expects, which starts the command, and begins to send its input. */
  async open(): Promise<void> {
    const { socket, input, tty } = this.options;
    await this.openOne('error');
    const stdin = input.isThere ? await this.openOne('stdin') : undefined;
    await this.openOne('stdout');
    if (tty === undefined) await this.openOne('stderr');
    const resize = tty === undefined ? undefined : await this.openOne('resize');
    if (resize !== undefined && tty !== undefined) void this.keepSize(resizeFrame(resize, tty));
    if (stdin !== undefined) void input.send(socket, stdin, resize);
  }

  /**
   * What the command writes, and its end.
   * @throws kind `unavailable` when the connection ends before the runtime has told the end of the command.
   */
  async *events(): AsyncGenerator<ExecEvent> {
    const { socket, head } = this.options;
    try {
      yield* this.take(head);
      if (this.hasExited) return;
      for await (const chunk of socket as AsyncIterable<Buffer>) {
        yield* this.take(chunk);
        if (this.hasExited) return;
      }
    } catch (reason) {
      if (reason instanceof CloudlessError) throw reason;
      throw connectionEnded(reason);
    }
    if (this.status === '') throw connectionEnded();
    yield this.ended();
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
      if (this.hasExited || input.wasResized || socket.destroyed) return;
      await writeInTurn(socket, frame);
      await sleep(clock, delayMs);
    }
  }

  private *take(chunk: Uint8Array): Generator<ExecEvent> {
    for (const frame of this.parser.feed(chunk)) {
      const event = this.toEvent(frame);
      if (event === undefined) continue;
      yield event;
      if (event.kind === 'exited') return;
    }
  }

  private toEvent(frame: SpdyFrame): ExecEvent | undefined {
    if (frame.kind === 'ping') this.options.socket.write(pingFrame(frame.id));
    if (frame.kind !== 'data') return undefined;
    const name = this.names.get(frame.streamId);
    if (name === 'stdout' || name === 'stderr') return { kind: 'output', stream: name, data: frame.data };
    if (name !== 'error') return undefined;
    this.status = (this.status + new TextDecoder().decode(frame.data)).slice(0, MAX_STATUS_BYTES);
    return isWhole(this.status) ? this.ended() : undefined;
  }

  private ended(): ExecEvent {
    this.hasExited = true;
    return { kind: 'exited', exitCode: exitCodeFrom(this.status) };
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
