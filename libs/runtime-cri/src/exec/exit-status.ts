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

/** Error texts of container runtimes for a program that does not exist or cannot be executed. */
const NOT_FOUND = /executable file [^:]*not found|no such file or directory/i;
const NOT_EXECUTABLE = /permission denied|exec format error|is a directory|not a directory/i;
/** Prefixes that the layers of the container runtime put before the cause of an error. */
const LAYERS = /^.*unable to start container process: (?=exec)/s;
/** Error texts of container runtimes for a container that does not run. */
const NOT_RUNNING =
  /is in CONTAINER_EXITED state|container not running|cannot exec in a (?:stopped|deleted) state|not running|ttrpc: closed/i;

/**
 * Parses the final status of a command.
 * @returns The exit code; 0 for the status `Success`.
 * @throws {@link CommandNotStartedError} when the program could not be executed, kind
 *   `precondition` when the container does not run, kind `internal` for another failure or an
 *   unknown format.
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

/**
 * Converts the message of the container runtime about a command that did not run to one of the
 * errors of {@link parseExitCode}.
 */
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

/** Returns the exit code that a shell has for such a refusal; undefined for another error. */
function classifyRefusal(message: string): CommandNotStartedError['exitCode'] | undefined {
  if (NOT_FOUND.test(message)) return NOT_STARTED_EXIT_CODES.notFound;
  return NOT_EXECUTABLE.test(message) ? NOT_STARTED_EXIT_CODES.notExecutable : undefined;
}
