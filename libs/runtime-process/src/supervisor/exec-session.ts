import type { Socket } from 'node:net';
import { CloudlessError, errorKindOf, errorMessageOf, type Timer } from '@cloudless/base';
import { encodeFrame, type FrameKind } from '../wire/frames.js';
import type { ClientMessage, SupervisorMessage } from '../wire/messages.js';
import type { ExecCommand } from './exec-command.js';
import type { Supervisor } from './supervisor.js';

type ExecMessage = Extract<ClientMessage, { type: 'exec' }>;

/** A connection that belongs to one command: when it closes, the command ends; when its reader is slow, the command waits. */
export class ExecSession {
  private running: { readonly command: ExecCommand; readonly release: () => void } | undefined;
  private early: Buffer[] = [];
  private inputEnded = false;
  private closed = false;
  private timedOut = false;
  private deadline: Timer | undefined;

  constructor(
    private readonly socket: Socket,
    private readonly supervisor: Supervisor,
    private readonly message: ExecMessage,
    private readonly send: (answer: SupervisorMessage) => void,
  ) {
    socket.pause(); // input that comes before the command runs waits in the socket
    socket.on('drain', () => this.running?.command.resume());
    void this.start();
  }

  /** Takes input. */
  receive(kind: FrameKind, payload: Buffer): void {
    if (kind !== 'stdin' && kind !== 'stdinEnd') throw new CloudlessError('invalid', 'unexpected frame');
    if (this.closed) return;
    if (kind === 'stdinEnd') this.inputEnded = true;
    const command = this.running?.command;
    if (command === undefined) {
      this.early.push(payload);
      return;
    }
    if (kind === 'stdinEnd') command.endInput();
    else if (!command.writeInput(payload)) this.socket.pause();
  }

  /** The caller has gone. */
  close(): void {
    this.closed = true;
    this.deadline?.cancel();
    this.running?.command.close();
    this.running?.release();
  }

  private async start(): Promise<void> {
    const { containerId, command, timeoutMs, hasInput } = this.message;
    try {
      const running = await this.supervisor.exec(containerId, {
        command,
        hasInput,
        onOutput: (stream, chunk) => {
          if (!this.socket.destroyed && !this.socket.write(encodeFrame(stream, chunk))) this.running?.command.pause();
        },
        onInputDrained: () => this.socket.resume(),
        onEnd: (exitCode) => this.end(exitCode),
      });
      this.running = running;
      if (this.closed) return this.close();
      if (timeoutMs !== undefined) this.deadline = this.supervisor.after(timeoutMs, () => this.expire(running.command));
      for (const chunk of this.early.splice(0)) running.command.writeInput(chunk);
      if (this.inputEnded) running.command.endInput();
      this.socket.resume();
    } catch (reason) {
      this.closed = true;
      this.early.length = 0;
      this.send({ type: 'failed', id: this.message.id, kind: errorKindOf(reason), text: errorMessageOf(reason) });
      this.socket.end();
      this.socket.resume(); // or its end would never be seen
    }
  }

  private expire(command: ExecCommand): void {
    this.timedOut = true;
    command.kill();
  }

  private end(exitCode: number): void {
    this.deadline?.cancel();
    const { id, timeoutMs } = this.message;
    if (this.timedOut) this.send({ type: 'failed', id, kind: 'deadline', text: `the command took longer than ${timeoutMs} ms` });
    else this.send({ type: 'done', id, exitCode });
    this.running?.release();
    this.socket.end();
  }
}
