import { ReadStream } from 'node:tty';
import { CloudlessError } from '@cloudless/base';
import type { TerminalSize } from '@cloudless/runtime';
import { drainDescriptor } from '../container/drain-descriptor.js';
import { toSpawnError } from '../process/launch-command.js';
import { CommandProcess, type CommandOptions, type CommandOutput } from './command-process.js';
import { prepareCommand } from './command-start.js';
import { loadPtyBinding, findSpawnHelper, type PtyBinding } from './pty-binding.js';
import { TerminalInput } from './terminal-input.js';

export interface TerminalCommandOptions extends CommandOptions {
  readonly tty: TerminalSize;
}

/** Character that ends the input of a terminal (Ctrl-D). */
const END_OF_FILE = Uint8Array.of(4);
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
    clear: () => void,
  ) {
    super(pid, [output], options, clear);
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
    const inTerminal = { ...context, env: { TERM: DEFAULT_TERM, ...context.env } };
    const { file, args, env, cleanUp } = prepareCommand(command, inTerminal, execId, join);
    let started: TerminalCommand | undefined;
    // The values -1, -1, true: keep the user and the group of this process; the input is UTF-8.
    const process = forkTerminal(binding, command[0] ?? '', cleanUp, [
      ...([file, args, Object.entries(env).map(([name, value]) => `${name}=${value}`)] as const),
      ...([context.workingDir, tty.columns, tty.rows, -1, -1, true, findSpawnHelper()] as const),
      (code, signal) => started?.onExited(signal === 0 ? code : 128 + signal),
    ]);
    const input = new TerminalInput(process.fd, clock, options.onInputDrained);
    const output = new TerminalOutput(process.fd, {
      onData: (chunk) =>
        started?.wantsOutput === false ? undefined : options.onOutput('stdout', chunk),
      onEnd: () => started?.onOutputEnded(),
      beforeClose: (close) => input.close(close),
    });
    started = new TerminalCommand(
      process.pid,
      process.fd,
      binding,
      output,
      input,
      options,
      cleanUp,
    );
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

function forkTerminal(
  binding: PtyBinding,
  name: string,
  clear: () => void,
  args: Parameters<PtyBinding['fork']>,
): ReturnType<PtyBinding['fork']> {
  try {
    return binding.fork(...args);
  } catch (cause) {
    clear();
    throw toSpawnError(cause as NodeJS.ErrnoException, name);
  }
}

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
