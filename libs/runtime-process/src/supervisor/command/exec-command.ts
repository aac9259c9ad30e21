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

export interface ExecCommandOptions extends CommandOptions {
  readonly directory: string;
  readonly fifos: FifoPool;
  readonly hasInput: boolean;
}

/** One command in a container, with pipes. */
export class ExecCommand extends CommandProcess {
  private constructor(
    options: ExecCommandOptions,
    child: ChildProcess,
    readers: readonly PipeReader[],
    private readonly input: net.Socket | undefined,
    clear: () => void,
  ) {
    super(child.pid ?? 0, readers, options, clear);
    child.on('exit', (code, signal) => this.onExited(toProcessEnd(code, signal).exitCode));
    child.on('error', () => undefined); // only a failed signal; `exit` follows
    input?.on('error', () => this.dropInput()); // the command closed its input
    input?.on('drain', options.onInputDrained);
    input?.on('close', options.onInputDrained);
  }

  /**
   * Starts the command.
   * @throws kind `invalid` when it cannot be started, `exhausted` when pipes or processes ran out.
   */
  static async start(options: ExecCommandOptions): Promise<ExecCommand> {
    const { command, context, execId, join } = options;
    const plan = prepareCommand(command, context, execId, join);
    try {
      return await ExecCommand.launch(options, plan);
    } catch (reason) {
      plan.cleanUp();
      throw reason;
    }
  }

  private static async launch(
    options: ExecCommandOptions,
    plan: CommandStart,
  ): Promise<ExecCommand> {
    const { command, context, execId, fifos, directory } = options;
    const { file, argv0, args, env, cleanUp } = plan;
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
        (chunk) => (started?.wantsOutput === false ? undefined : options.onOutput(stream, chunk)),
        () => started?.onOutputEnded(),
      );
    const readers = [createReader('stdout', stdout), createReader('stderr', stderr)];
    const childEnds = [openSync(stdout, constants.O_WRONLY), openSync(stderr, constants.O_WRONLY)];
    const inputEnds = stdin === undefined ? undefined : openInput(stdin);
    // Both ends are open: the names are not needed any more.
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
      for (const open of readers) open.close();
      if (inputEnds !== undefined) closeSync(inputEnds.parentEnd);
      throw toSpawnError(
        await new Promise<NodeJS.ErrnoException>((resolve) => child.once('error', resolve)),
        command[0] ?? argv0,
      );
    }
    const input =
      inputEnds === undefined
        ? undefined
        : new net.Socket({ fd: inputEnds.parentEnd, readable: false, writable: true });
    started = new ExecCommand(options, child, readers, input, cleanUp);
    for (const open of readers) open.start();
    return started;
  }

  /** False when the sender should wait for `onInputDrained`. */
  writeInput(chunk: Uint8Array): boolean {
    return this.input === undefined || this.input.destroyed || this.input.write(chunk);
  }

  endInput(): void {
    // after all earlier writes; a pipe has no half-close
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
  const both = openSync(file, constants.O_RDWR);
  const theirs = openSync(file, constants.O_RDONLY);
  const ours = openSync(file, constants.O_WRONLY | constants.O_NONBLOCK);
  closeSync(both);
  return { parentEnd: ours, childEnd: theirs };
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
    `too many commands run on this node: at most ${MAX_COMMANDS} may run at the same time`,
  );
}
