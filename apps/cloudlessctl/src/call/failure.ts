/** Exit codes of cloudlessctl. They are part of the published interface; scripts depend on them. */
export const ExitCode = {
  ok: 0,
  error: 1,
  /**
   * The command line, a manifest or the configuration is invalid, or the coordinator refused one of
   * its values.
   */
  usage: 2,
  notFound: 3,
  /**
   * The state of the cluster does not allow the request: the object exists already, has changed, or
   * is in the wrong phase.
   */
  conflict: 4,
  unavailable: 5,
  timeout: 6,
  noCapacity: 7,
  rolloutFailed: 8,
  /** The change needs a confirmation, and the user declined or standard input is no terminal. */
  notConfirmed: 9,
  /** Ctrl-C: 128 + SIGINT, as in shells. */
  interrupted: 130,
} as const;

/**
 * An error with its own exit code. The message is printed to the user and may have several lines.
 */
export class CliFailure extends Error {
  override readonly name = 'CliFailure';
  constructor(
    readonly exitCode: number,
    message: string,
    options?: { readonly cause?: unknown },
  ) {
    super(message, options);
  }
}

/** Creates a failure with exit code 2. */
export function createUsageFailure(message: string): CliFailure {
  return new CliFailure(ExitCode.usage, message);
}

/** The coordinator address of a command, for error messages. */
export interface ConnectionTarget {
  /** One address, or several separated by commas. */
  readonly server: string;
  /** The context in use; absent when the configuration has none. */
  readonly context?: string;
  readonly configPath: string;
  /** Namespace of names that are given without a namespace. Empty: the whole cluster. */
  readonly namespace?: string;
}
