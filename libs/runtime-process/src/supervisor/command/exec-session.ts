import type { Socket } from 'node:net';
import { CloudlessError, errorKindOf, errorMessageOf, type Timer } from '@cloudless/base';
import { CommandNotStartedError } from '@cloudless/runtime';
import { encodeFrame, parseResize, type FrameKind } from '../../wire/frames.js';
import {
  INPUT_WINDOW_BYTES,
  type ClientMessage,
  type SupervisorMessage,
} from '../../wire/messages.js';
import type { Supervisor } from '../supervisor.js';
import type { CommandProcess } from './command-process.js';

type ExecMessage = Extract<ClientMessage, { type: 'exec' }>;

/**
 * Most input bytes that may wait for the command. A client without flow control sends its whole
 * input at once; the limit leaves room for the input of such a call.
 */
const MAX_UNREAD_INPUT_BYTES = 2 * 1024 * 1024;
/** Smallest number of bytes that one `window` message grants, so that few messages are sent. */
const MIN_GRANT_BYTES = INPUT_WINDOW_BYTES / 8;

/**
 * A connection that belongs to one command. The session ends the command when the connection
 * closes, and stops reading the output while the client reads slowly. The session always reads the
 * socket, because otherwise it would not notice that the client has gone; a window bounds the input
 * that waits for the command.
 */
export class ExecSession {
  private running: { readonly command: CommandProcess; readonly release: () => void } | undefined;
  private inputBeforeStart: Buffer[] = [];
  private hasInputEnded = false;
  private isClosed = false;
  private hasTimedOut = false;
  private deadline: Timer | undefined;
  /** Bytes that the client has sent and the command has not read yet. */
  private unreadBytes = 0;
  /** Bytes that the command has read, and that the client may not send again yet. */
  private ungrantedBytes = 0;

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
   * Handles a frame of the client.
   * @throws kind `invalid` for an unexpected frame, or when more than
   *   {@link MAX_UNREAD_INPUT_BYTES} of input wait.
   */
  receive(kind: FrameKind, payload: Buffer): void {
    if (this.isClosed) return;
    const command = this.running?.command;
    if (kind === 'resize') command?.resize(parseResize(payload));
    else if (kind === 'stdinEnd') this.endInput();
    else if (kind === 'stdin') this.onInput(payload);
    else throw new CloudlessError('invalid', 'unexpected frame');
  }

  /** Ends the command, because its caller has gone. */
  close(): void {
    this.isClosed = true;
    this.deadline?.cancel();
    this.running?.command.abandon();
  }

  private onInput(payload: Buffer): void {
    this.unreadBytes += payload.length;
    if (this.unreadBytes > MAX_UNREAD_INPUT_BYTES)
      throw new CloudlessError('invalid', 'more input than fits the window');
    const command = this.running?.command;
    if (command === undefined) this.inputBeforeStart.push(payload);
    else if (command.writeInput(payload)) this.onInputRead();
  }

  private endInput(): void {
    this.hasInputEnded = true;
    this.running?.command.endInput();
  }

  /** Grants the read bytes to the client again. Call it when the command has read all its input. */
  private onInputRead(): void {
    this.ungrantedBytes += this.unreadBytes;
    this.unreadBytes = 0;
    if (this.ungrantedBytes < MIN_GRANT_BYTES) return;
    this.grantWindow(this.ungrantedBytes);
    this.ungrantedBytes = 0;
  }

  private grantWindow(bytes: number): void {
    if (this.message.windowed === true && !this.isClosed)
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
        onInputDrained: () => this.onInputRead(),
        onEnd: (exitCode) => this.onEnd(exitCode),
      });
      this.running = running;
      if (this.isClosed) return this.close();
      if (timeoutMs !== undefined)
        this.deadline = this.supervisor.setTimer(timeoutMs, () => this.onDeadline(running.command));
      for (const chunk of this.inputBeforeStart.splice(0)) running.command.writeInput(chunk);
      if (this.hasInputEnded) running.command.endInput();
      this.grantWindow(INPUT_WINDOW_BYTES);
    } catch (reason) {
      this.isClosed = true;
      this.inputBeforeStart.length = 0;
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

  private onDeadline(command: CommandProcess): void {
    this.hasTimedOut = true;
    command.kill();
  }

  private onEnd(exitCode: number): void {
    this.deadline?.cancel();
    this.isClosed = true;
    const { id, timeoutMs } = this.message;
    if (this.hasTimedOut)
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
