import { CloudlessError } from '@cloudless/base';

/** What the error stream of a remote command tells at its end, version 4 of the protocol: a Kubernetes `Status` as JSON. */
interface Status {
  readonly status?: string;
  readonly reason?: string;
  readonly message?: string;
  readonly details?: { readonly causes?: readonly { readonly reason?: string; readonly message?: string }[] };
}

/** Texts of runtimes for a command that cannot be started. */
const NOT_STARTABLE = /executable file not found|no such file or directory|permission denied|exec format error|is a directory/i;
const NOT_RUNNING =
  /is in CONTAINER_EXITED state|container not running|cannot exec in a (?:stopped|deleted) state|not running|ttrpc: closed/i;

/**
 * @returns The exit code.
 * @throws kind `invalid` when the command could not be started, `precondition` when the container does not run.
 */
export function exitCodeFrom(text: string): number {
  let status: Status;
  try {
    status = JSON.parse(text) as Status;
  } catch {
    throw new CloudlessError(
      'internal',
      `the container runtime told the end of a command in words that are not known: ${text.slice(0, 200)}`,
    );
  }
  if (status.status === 'Success') return 0;
  const exitCode = status.details?.causes?.find(({ reason }) => reason === 'ExitCode')?.message;
  if (status.reason === 'NonZeroExitCode' && exitCode !== undefined && /^\d{1,3}$/.test(exitCode)) return Number(exitCode);
  throw execFailure(status.message ?? text.slice(0, 200));
}

/** A command that did not run, from the runtime's words. */
export function execFailure(message: string, cause?: unknown): CloudlessError {
  const options = cause === undefined ? {} : { cause };
  if (NOT_RUNNING.test(message)) return new CloudlessError('precondition', message, options);
  if (NOT_STARTABLE.test(message)) return new CloudlessError('invalid', message, options);
  return new CloudlessError('internal', message, options);
}
