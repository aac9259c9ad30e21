import { spawn, type ChildProcess } from 'node:child_process';
import { closeSync, constants, openSync, rmSync } from 'node:fs';
import net from 'node:net';
import path from 'node:path';
import { CloudlessError } from '@cloudless/base';
import type { LogStream } from '@cloudless/runtime';
import { layout } from '../container/container-paths.js';
import type { FifoPool } from '../container/fifo-pool.js';
import { toSpawnError } from '../process/launch-command.js';
import { PipeReader } from '../container/pipe-reader.js';
import { toProcessEnd } from '../process/process-end.js';
import { prepareCommand, type CommandStart } from './command-start.js';
import { CommandProcess, type CommandOptions } from './command-process.js';

/** Options of {@link ExecCommand.start}. */
export interface ExecCommandOptions extends CommandOptions {
  /** Directory of the supervisor. */
  readonly directory: string;
  readonly fifos: FifoPool;
  /** False gives the command an empty input. */
  readonly hasInput: boolean;
}

/** One command in a container, without a terminal: pipes carry its input and output. */
export class ExecCommand extends CommandProcess {
  private constructor(
    options: ExecCommandOptions,
    child: ChildProcess,
    readers: readonly PipeReader[],
    private readonly input: net.Socket | undefined,
    cleanUp: () => void,
  ) {
    super(child.pid ?? 0, readers, options, cleanUp);
    child.on('exit', (code, signal) => this.onExited(toProcessEnd(code, signal).exitCode));
    child.on('error', () => undefined); // only a failed signal; `exit` follows
    input?.on('error', () => this.dropInput()); // the command closed its input
    input?.on('drain', options.onInputDrained);
    input?.on('close', options.onInputDrained);
  }

  /**
   * Starts the command.
   * @throws kind `invalid` when the command cannot be started, `exhausted` when the machine has no
   *   more pipes or processes.
   */
  static async start(options: ExecCommandOptions): Promise<ExecCommand> {
    const { command, context, execId, join } = options;
    const commandStart = prepareCommand(command, context, execId, join);
    try {
      return await ExecCommand.launch(options, commandStart);
    } catch (reason) {
      commandStart.cleanUp();
      throw reason;
    }
  }

  private static async launch(
    options: ExecCommandOptions,
    commandStart: CommandStart,
  ): Promise<ExecCommand> {
    const { command, context, execId, fifos, directory } = options;
    const { file, argv0, args, env, cleanUp } = commandStart;
    const createPipe = async (name: string): Promise<string> => {
      const target = path.join(layout.fifos(directory), `${execId}.${name}`);
      await fifos.acquire(target);
      return target;
    };
    const files = [
      await createPipe('stdout'),
      await createPipe('stderr'),
      ...(options.hasInput ? [await createPipe('stdin')] : []),
    ];
    const [stdout = '', stderr = '', stdin] = files;
    let started: ExecCommand | undefined;
    const createReader = (stream: LogStream, target: string): PipeReader =>
      new PipeReader(
        target,
        (chunk) => (started?.hasReader === false ? undefined : options.onOutput(stream, chunk)),
        () => started?.onOutputEnded(),
      );
    const readers = [createReader('stdout', stdout), createReader('stderr', stderr)];
    const childEnds = [openSync(stdout, constants.O_WRONLY), openSync(stderr, constants.O_WRONLY)];
    const inputEnds = stdin === undefined ? undefined : openInput(stdin);
    // Both ends of each pipe are open, so the pipes need no names any more.
    for (const target of files) rmSync(target, { force: true });
    const child = spawn(file, args, {
      argv0,
      cwd: context.workingDir,
      env,
      detached: true,
      stdio: [inputEnds?.childEnd ?? 'ignore', childEnds[0], childEnds[1]],
    });
    for (const fd of [...childEnds, ...(inputEnds === undefined ? [] : [inputEnds.childEnd])])
      closeSync(fd);
    if (child.pid === undefined) {
      for (const reader of readers) reader.close();
      if (inputEnds !== undefined) closeSync(inputEnds.parentEnd);
      throw toSpawnError(
        await new Promise<Error>((resolve) => child.once('error', resolve)),
        command[0] ?? argv0,
      );
    }
    const input =
      inputEnds === undefined
        ? undefined
        : new net.Socket({ fd: inputEnds.parentEnd, readable: false, writable: true });
    started = new ExecCommand(options, child, readers, input, cleanUp);
    for (const reader of readers) reader.start();
    return started;
  }

  writeInput(chunk: Uint8Array): boolean {
    return this.input === undefined || this.input.destroyed || this.input.write(chunk);
  }

  endInput(): void {
    // The callback runs after all earlier writes; a pipe cannot be closed for writing only.
    this.input?.write('', () => this.dropInput());
  }

  /** Does nothing: a command without a terminal has no size. */
  resize(): void {
    return undefined;
  }

  protected dropInput(): void {
    this.input?.destroy();
  }
}

/**
 * Opens both ends of the input pipe. Opening a FIFO for reading and writing first keeps the other
 * two calls from blocking.
 */
function openInput(file: string): { readonly parentEnd: number; readonly childEnd: number } {
  const bothEnds = openSync(file, constants.O_RDWR);
  const childEnd = openSync(file, constants.O_RDONLY);
  const parentEnd = openSync(file, constants.O_WRONLY | constants.O_NONBLOCK);
  closeSync(bothEnds);
  return { parentEnd, childEnd };
}

/**
 * Most commands that may run at the same time on a node; each holds processes, pipes and a
 * connection.
 */
export const MAX_COMMANDS = 64;

/** Creates the error for a command beyond {@link MAX_COMMANDS}. */
export function createTooManyExecsError(): CloudlessError {
  return new CloudlessError(
    'exhausted',
    `too many commands run on this node: at most ${MAX_COMMANDS} may run at the same time; try again when one has ended`,
  );
}
