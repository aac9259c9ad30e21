import { CloudlessError } from '@cloudless/base';
import { CommandNotStartedError, NOT_STARTED_EXIT_CODES } from '@cloudless/runtime';

/**
 * Final message on the error stream of a remote command, version 4 of the protocol: a Kubernetes
 * `Status` as JSON.
 */
interface Status {
  readonly status?: string;
  readonly reason?: string;
  readonly message?: string;
  readonly details?: {
    readonly causes?: readonly { readonly reason?: string; readonly message?: string }[];
  };
}

/** Errors of container runtimes for a program that does not exist or cannot be executed. */
const NOT_FOUND = /executable file [^:]*not found|no such file or directory/i;
const NOT_EXECUTABLE = /permission denied|exec format error|is a directory|not a directory/i;
/** Prefixes of the layers of the container runtime, before the cause. */
const LAYERS = /^.*unable to start container process: (?=exec)/s;
const NOT_RUNNING =
  /is in CONTAINER_EXITED state|container not running|cannot exec in a (?:stopped|deleted) state|not running|ttrpc: closed/i;

/**
 * Parses the final status of a command.
@returns The exit code.
 * @throws {@link CommandNotStartedError} when the program could not be executed, kind
 *   `precondition` when the container does not run.
 */
export function parseExitCode(text: string): number {
  let status: Status;
  try {
    status = JSON.parse(text) as Status;
  } catch {
    throw new CloudlessError(
      'internal',
      `the container runtime reported the end of the command in an unknown format: ${text.slice(0, 200)}`,
    );
  }
  if (status.status === 'Success') return 0;
  const exitCode = status.details?.causes?.find(({ reason }) => reason === 'ExitCode')?.message;
  if (status.reason === 'NonZeroExitCode' && exitCode !== undefined && /^\d{1,3}$/.test(exitCode))
    return Number(exitCode);
  throw toExecError(status.message ?? text.slice(0, 200));
}

/** Converts the runtime's message about a command that did not run. */
export function toExecError(message: string, cause?: unknown): CloudlessError {
  const options = cause === undefined ? {} : { cause };
  if (NOT_RUNNING.test(message)) return new CloudlessError('precondition', message, options);
  const exitCode = classifyRefusal(message);
  if (exitCode !== undefined) {
    return new CommandNotStartedError(
      exitCode,
      message.replace(LAYERS, '').replace(/: unknown$/, ''),
      options,
    );
  }
  return new CloudlessError('internal', message, options);
}

function classifyRefusal(message: string): CommandNotStartedError['exitCode'] | undefined {
  if (NOT_FOUND.test(message)) return NOT_STARTED_EXIT_CODES.notFound;
  return NOT_EXECUTABLE.test(message) ? NOT_STARTED_EXIT_CODES.notExecutable : undefined;
}
