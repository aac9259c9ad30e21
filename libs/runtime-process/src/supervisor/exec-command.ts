import { spawn, type ChildProcess } from 'node:child_process';
import { closeSync, constants, openSync, rmSync } from 'node:fs';
import net from 'node:net';
import path from 'node:path';
import { CloudlessError } from '@cloudless/base';
import type { LogStream } from '@cloudless/runtime';
import { CommandProcess, type CommandOptions } from './command-process.js';
import { layout } from './container-paths.js';
import type { FifoPool } from './fifo-pool.js';
import { planCommand, type CommandStart } from './command-start.js';
import { spawnFailure } from './launch-plan.js';
import { PipeReader } from './pipe-reader.js';
import { endOf } from './process-end.js';

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
    child.on('exit', (code, signal) => this.exited(endOf(code, signal).exitCode));
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
    const plan = planCommand(command, context, execId, join);
    try {
      return await ExecCommand.launch(options, plan);
    } catch (reason) {
      plan.clear();
      throw reason;
    }
  }

  private static async launch(
    options: ExecCommandOptions,
    plan: CommandStart,
  ): Promise<ExecCommand> {
    const { command, context, execId, fifos, directory } = options;
    const { file, argv0, args, env, clear } = plan;
    const pipe = async (name: string): Promise<string> => {
      const target = path.join(layout.fifos(directory), `${execId}.${name}`);
      await fifos.take(target);
      return target;
    };
    const files = [
      await pipe('stdout'),
      await pipe('stderr'),
      ...(options.hasInput ? [await pipe('stdin')] : []),
    ];
    const [stdout = '', stderr = '', stdin] = files;
    let started: ExecCommand | undefined;
    const reader = (stream: LogStream, target: string): PipeReader =>
      new PipeReader(
        target,
        (chunk) => (started?.isHeard === false ? undefined : options.onOutput(stream, chunk)),
        () => started?.outputEnded(),
      );
    const readers = [reader('stdout', stdout), reader('stderr', stderr)];
    const theirs = [openSync(stdout, constants.O_WRONLY), openSync(stderr, constants.O_WRONLY)];
    const inputEnds = stdin === undefined ? undefined : openInput(stdin);
    // Both ends are open: the names are not needed any more.
    for (const target of files) rmSync(target, { force: true });
    const child = spawn(file, args, {
      argv0,
      cwd: context.workingDir,
      env,
      detached: true,
      stdio: [inputEnds?.theirs ?? 'ignore', theirs[0], theirs[1]],
    });
    for (const fd of [...theirs, ...(inputEnds === undefined ? [] : [inputEnds.theirs])])
      closeSync(fd);
    if (child.pid === undefined) {
      for (const open of readers) open.close();
      if (inputEnds !== undefined) closeSync(inputEnds.ours);
      throw spawnFailure(
        await new Promise<NodeJS.ErrnoException>((resolve) => child.once('error', resolve)),
        command[0] ?? argv0,
      );
    }
    const input =
      inputEnds === undefined
        ? undefined
        : new net.Socket({ fd: inputEnds.ours, readable: false, writable: true });
    started = new ExecCommand(options, child, readers, input, clear);
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
function openInput(file: string): { readonly ours: number; readonly theirs: number } {
  const both = openSync(file, constants.O_RDWR);
  const theirs = openSync(file, constants.O_RDONLY);
  const ours = openSync(file, constants.O_WRONLY | constants.O_NONBLOCK);
  closeSync(both);
  return { ours, theirs };
}

/**
 * Most commands that may run at the same time on a node; each holds processes, pipes and a
 * connection.
 */
export const MAX_EXECS = 64;

/** Creates the error for a command beyond {@link MAX_EXECS}. */
export function tooManyExecs(): CloudlessError {
  return new CloudlessError(
    'exhausted',
    `too many commands run on this node: at most ${MAX_EXECS} may run at the same time`,
  );
}
