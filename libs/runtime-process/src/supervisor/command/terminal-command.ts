import { ReadStream } from 'node:tty';
import { CloudlessError } from '@cloudless/base';
import type { TerminalSize } from '@cloudless/runtime';
import { drainDescriptor } from '../container/drain-descriptor.js';
import { toSpawnError } from '../process/launch-command.js';
import { CommandProcess, type CommandOptions, type CommandOutput } from './command-process.js';
import { prepareCommand } from './command-start.js';
import { loadPtyBinding, findSpawnHelper, type PtyBinding } from './pty-binding.js';
import { TerminalInput } from './terminal-input.js';

/** Options of {@link TerminalCommand.start}. */
export interface TerminalCommandOptions extends CommandOptions {
  /** Size of the terminal at the start. */
  readonly tty: TerminalSize;
}

/** Character that ends the input of a terminal (Ctrl-D). */
const END_OF_FILE = Uint8Array.of(4);
/** The user or the group of this process. */
const OWN_ID = -1;
/** The input of the terminal is UTF-8. */
const IS_UTF8 = true;
/** Value of the variable TERM when the request sets none. */
const DEFAULT_TERM = 'xterm';

/** One command in a container, with a terminal and a process session of its own. */
export class TerminalCommand extends CommandProcess {
  private constructor(
    pid: number,
    private readonly fd: number,
    private readonly binding: PtyBinding,
    private readonly output: TerminalOutput,
    private readonly input: TerminalInput,
    options: TerminalCommandOptions,
    cleanUp: () => void,
  ) {
    super(pid, [output], options, cleanUp);
  }

  /**
   * Starts the command.
   * @throws kind `invalid` when the command cannot be started, `unimplemented` when this node has
   *   no support for terminals.
   */
  static start(options: TerminalCommandOptions): TerminalCommand {
    const { command, context, execId, tty, clock, join } = options;
    const binding = loadPtyBinding();
    if (binding === undefined)
      throw new CloudlessError('unimplemented', 'tty: this node lacks the capability exec.tty');
    const terminalContext = { ...context, env: { TERM: DEFAULT_TERM, ...context.env } };
    const { file, args, env, cleanUp } = prepareCommand(command, terminalContext, execId, join);
    let started: TerminalCommand | undefined;
    const forked = forkTerminal(binding, command[0] ?? '', cleanUp, [
      file,
      args,
      Object.entries(env).map(([name, value]) => `${name}=${value}`),
      context.workingDir,
      tty.columns,
      tty.rows,
      OWN_ID,
      OWN_ID,
      IS_UTF8,
      findSpawnHelper(),
      (code, signal) => started?.onExited(signal === 0 ? code : 128 + signal),
    ]);
    const input = new TerminalInput(forked.fd, clock, options.onInputDrained);
    const output = new TerminalOutput(forked.fd, {
      onData: (chunk) =>
        started?.hasReader === false ? undefined : options.onOutput('stdout', chunk),
      onEnd: () => started?.onOutputEnded(),
      beforeClose: (close) => input.close(close),
    });
    started = new TerminalCommand(forked.pid, forked.fd, binding, output, input, options, cleanUp);
    return started;
  }

  writeInput(chunk: Uint8Array): boolean {
    return this.input.write(chunk);
  }

  endInput(): void {
    this.input.write(END_OF_FILE);
  }

  resize({ columns, rows }: TerminalSize): void {
    if (columns > 0 && rows > 0 && this.output.isOpen) this.binding.resize(this.fd, columns, rows);
  }

  protected dropInput(): void {
    this.input.close(() => undefined);
  }
}

/**
 * Starts a process in a new terminal.
 * @param name - The program as the caller named it, for the error.
 * @param cleanUp - Called when the start fails.
 */
function forkTerminal(
  binding: PtyBinding,
  name: string,
  cleanUp: () => void,
  args: Parameters<PtyBinding['fork']>,
): ReturnType<PtyBinding['fork']> {
  try {
    return binding.fork(...args);
  } catch (cause) {
    cleanUp();
    throw toSpawnError(cause, name);
  }
}

/** Receives the output of a terminal, and its end. */
interface TerminalOutputListener {
  readonly onData: (chunk: Uint8Array) => void;
  /** Called once, when no more output follows. */
  readonly onEnd: () => void;
  /**
   * Called once, before the descriptor is closed. Must call `close` when nothing uses the
   * descriptor any more.
   */
  readonly beforeClose: (close: () => void) => void;
}

/** The output of a terminal: what the command writes to stdout and stderr, as one stream. */
class TerminalOutput implements CommandOutput {
  private readonly stream: ReadStream;
  private isClosed = false;
  bytesRead = 0;

  constructor(
    private readonly fd: number,
    private readonly listener: TerminalOutputListener,
  ) {
    this.stream = new ReadStream(fd);
    this.stream.on('data', (chunk: Buffer) => this.isClosed || this.onChunk(chunk));
    this.stream.on('error', () => this.onEnded()); // EIO: no process has the terminal open
    // Node.js reports the end of the stream when a hang-up follows a partial read. A terminal
    // delivers its output in parts, so unread output may be left: `finish` reads the rest.
    this.stream.on('end', () => this.finish());
  }

  get isOpen(): boolean {
    return !this.isClosed;
  }

  get isPaused(): boolean {
    return this.stream.isPaused();
  }

  pause(): void {
    this.stream.pause();
  }

  resume(): void {
    this.stream.resume();
  }

  finish(): void {
    if (this.isClosed) return;
    drainDescriptor(this.fd, (chunk) => this.onChunk(chunk));
    this.onEnded();
  }

  private onChunk(chunk: Uint8Array): void {
    this.bytesRead += chunk.length;
    this.listener.onData(chunk);
  }

  private onEnded(): void {
    if (this.isClosed) return;
    this.isClosed = true;
    this.listener.beforeClose(() => this.stream.destroy());
    this.listener.onEnd();
  }
}
