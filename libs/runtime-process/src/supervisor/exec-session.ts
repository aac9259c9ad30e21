import type { Socket } from 'node:net';
import { CloudlessError, errorKindOf, errorMessageOf, type Timer } from '@cloudless/base';
import { CommandNotStartedError } from '@cloudless/runtime';
import { encodeFrame, parseResize, type FrameKind } from '../wire/frames.js';
import {
  INPUT_WINDOW_BYTES,
  type ClientMessage,
  type SupervisorMessage,
} from '../wire/messages.js';
import type { CommandProcess } from './command-process.js';
import type { Supervisor } from './supervisor.js';

type ExecMessage = Extract<ClientMessage, { type: 'exec' }>;

/**
 * A client without windows may send so much ahead of its command; the most that a call has as
 * input, and its frames.
 */
const MAX_AHEAD_BYTES = 2 * 1024 * 1024;
/** Room is told to the client in pieces of at least this size. */
const GRANT_BYTES = INPUT_WINDOW_BYTES / 8;

/**
 * A connection that belongs to one command: when it closes, the command ends; when its reader is
 * slow, the command waits. It is always read, or the end of the client would not be seen: a window
 * bounds the input that waits for the command instead.
 */
export class ExecSession {
  private running: { readonly command: CommandProcess; readonly release: () => void } | undefined;
  private early: Buffer[] = [];
  private inputEnded = false;
  private closed = false;
  private timedOut = false;
  private deadline: Timer | undefined;
  /** Sent by the client and not taken by the command. */
  private ahead = 0;
  /** Taken by the command and not granted again. */
  private taken = 0;

  constructor(
    private readonly socket: Socket,
    private readonly supervisor: Supervisor,
    private readonly message: ExecMessage,
    private readonly send: (answer: SupervisorMessage) => void,
  ) {
    socket.on('drain', () => this.running?.command.resume());
    void this.start();
  }

  /**
   * Takes input. @throws kind `invalid` for a frame that no client sends here, or too many of them.
   */
  receive(kind: FrameKind, payload: Buffer): void {
    if (this.closed) return;
    const command = this.running?.command;
    if (kind === 'resize') command?.resize(parseResize(payload));
    else if (kind === 'stdinEnd') this.endInput();
    else if (kind === 'stdin') this.input(payload);
    else throw new CloudlessError('invalid', 'unexpected frame');
  }

  /** The caller has gone. */
  close(): void {
    this.closed = true;
    this.deadline?.cancel();
    this.running?.command.leave();
  }

  private input(payload: Buffer): void {
    this.ahead += payload.length;
    if (this.ahead > MAX_AHEAD_BYTES)
      throw new CloudlessError('invalid', 'more input than fits the window');
    const command = this.running?.command;
    if (command === undefined) this.early.push(payload);
    else if (command.writeInput(payload)) this.drained();
  }

  private endInput(): void {
    this.inputEnded = true;
    this.running?.command.endInput();
  }

  /** The command has taken what was sent. */
  private drained(): void {
    this.taken += this.ahead;
    this.ahead = 0;
    if (this.taken < GRANT_BYTES) return;
    this.grant(this.taken);
    this.taken = 0;
  }

  private grant(bytes: number): void {
    if (this.message.windowed === true && !this.closed)
      this.send({ type: 'window', id: this.message.id, bytes });
  }

  private async start(): Promise<void> {
    const { timeoutMs } = this.message;
    try {
      const running = await this.supervisor.exec(this.message, {
        onOutput: (stream, chunk) => {
          if (!this.socket.destroyed && !this.socket.write(encodeFrame(stream, chunk)))
            this.running?.command.pause();
        },
        onInputDrained: () => this.drained(),
        onEnd: (exitCode) => this.end(exitCode),
      });
      this.running = running;
      if (this.closed) return this.close();
      if (timeoutMs !== undefined)
        this.deadline = this.supervisor.after(timeoutMs, () => this.expire(running.command));
      for (const chunk of this.early.splice(0)) running.command.writeInput(chunk);
      if (this.inputEnded) running.command.endInput();
      this.grant(INPUT_WINDOW_BYTES);
    } catch (reason) {
      this.closed = true;
      this.early.length = 0;
      const exitCode =
        reason instanceof CommandNotStartedError ? { exitCode: reason.exitCode } : {};
      this.send({
        type: 'failed',
        id: this.message.id,
        kind: errorKindOf(reason),
        text: errorMessageOf(reason),
        ...exitCode,
      });
      this.socket.end();
    }
  }

  private expire(command: CommandProcess): void {
    this.timedOut = true;
    command.kill();
  }

  private end(exitCode: number): void {
    this.deadline?.cancel();
    this.closed = true;
    const { id, timeoutMs } = this.message;
    if (this.timedOut)
      this.send({
        type: 'failed',
        id,
        kind: 'deadline',
        text: `the command took longer than ${timeoutMs} ms`,
      });
    else this.send({ type: 'done', id, exitCode });
    this.running?.release();
    this.socket.end();
  }
}
