import { CloudlessError, type ContainerId } from '@cloudless/base';
import type { ExecEvent, ExecRequest } from '../container-runtime.js';

/**
 * Exit codes of a command whose program cannot be executed, as shells and container engines use
 * them.
 * @see POSIX.1-2017, Shell Command Language, 2.8.2 "Exit Status for Commands"
 */
export const NOT_STARTED_EXIT_CODES = { notFound: 127, notExecutable: 126 } as const;

/** Length of container ids in messages, as in the tables of cloudlessctl. */
const SHORT_ID_LENGTH = 12;

/** Error for a command whose program does not exist or cannot be executed. */
export class CommandNotStartedError extends CloudlessError {
  /** @param exitCode - See {@link NOT_STARTED_EXIT_CODES}. */
  constructor(
    readonly exitCode: (typeof NOT_STARTED_EXIT_CODES)[keyof typeof NOT_STARTED_EXIT_CODES],
    message: string,
    options: ErrorOptions = {},
  ) {
    super('COMMAND_NOT_STARTED', message, options);
  }
}

/**
 * Converts a {@link CommandNotStartedError} of `events` to a line of output and an exit code, as a
 * shell reports a program that it cannot execute. Other events and errors pass unchanged.
 * @param containerId - Container of the command, named in the line.
 * @param request - With `tty` the line goes to stdout and ends with CR LF; otherwise to stderr.
 */
export async function* withStartFailure(
  containerId: ContainerId,
  { tty }: Pick<ExecRequest, 'tty'>,
  events: AsyncIterable<ExecEvent>,
): AsyncGenerator<ExecEvent> {
  try {
    yield* events;
  } catch (reason) {
    if (!(reason instanceof CommandNotStartedError)) throw reason;
    const container = containerId.slice(0, SHORT_ID_LENGTH);
    const line = `container ${container}: ${reason.message}${tty === undefined ? '\n' : '\r\n'}`;
    yield {
      kind: 'output',
      stream: tty === undefined ? 'stderr' : 'stdout',
      data: new TextEncoder().encode(line),
    };
    yield { kind: 'exited', exitCode: reason.exitCode };
  }
}
