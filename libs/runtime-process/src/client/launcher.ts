import { spawn } from 'node:child_process';
import { closeSync, openSync, readFileSync } from 'node:fs';
import path from 'node:path';
import {
  CloudlessError,
  errorKindOf,
  errorMessageOf,
  sleep,
  type Clock,
  type StopSignal,
} from '@cloudless/base';
import { toSupervisorArguments } from '../supervisor/run-supervisor.js';

export interface LauncherOptions {
  readonly directory: string;
  /** Program and arguments, to which {@link toSupervisorArguments} are appended. */
  readonly supervisorCommand: readonly string[];
  /** Milliseconds without clients and running containers after which the supervisor exits. */
  readonly idleMs: number;
  readonly clock: Clock;
}

/**
 * Longest wait for a new supervisor to accept connections. A start takes 0.2 s; from source, with
 * other starts on a busy machine, it took more than 15 s.
 */
const START_TIMEOUT_MS = 60_000;
/** Number of lines of the error output of a supervisor that a message quotes. */
const QUOTED_LINES = 5;
const ERROR_FILE = 'supervisor.err';
/** Delay between attempts to connect to the new supervisor. */
const POLL_MS = 5;

/**
 * Connects to the supervisor of a directory, and starts a supervisor when none runs. Any number of
 * clients may call this function at the same time: of the supervisors that they start, one acquires
 * the lock of the directory and the others exit.
 * @param connect - Called until it does not fail with kind `unavailable`. Its other errors are
 *   thrown.
 * @throws kind `unavailable` when no supervisor accepts a connection within 60 s. The cause quotes
 *   the end of `supervisor.err` in the directory, the error output of supervisors.
 */
export async function connectOrStart<Connected>(
  connect: () => Promise<Connected>,
  options: LauncherOptions,
  signal: StopSignal,
): Promise<Connected> {
  const { clock, directory } = options;
  const deadlineMs = clock.now() + START_TIMEOUT_MS;
  let child: { readonly hasExited: () => boolean; readonly unref: () => void } | undefined;
  try {
    for (;;) {
      try {
        return await connect();
      } catch (reason) {
        if (errorKindOf(reason) !== 'unavailable') throw reason;
        if (clock.now() >= deadlineMs) {
          throw createNoAnswerError(directory, reason);
        }
      }
      if (child === undefined || child.hasExited()) child = startSupervisor(options);
      await sleep(clock, POLL_MS, signal);
    }
  } finally {
    child?.unref();
  }
}

/** Creates the error for a supervisor that does not answer. */
function createNoAnswerError(directory: string, reason: unknown): CloudlessError {
  // For logs only: API callers must not see where the agent keeps its data.
  const details = `no supervisor answers in ${directory} (${errorMessageOf(reason)}); ${quoteErrorFile(directory)}`;
  return new CloudlessError(
    'unavailable',
    `the process supervisor does not answer within ${START_TIMEOUT_MS / 1_000} s: it cannot start, or the machine is too busy`,
    { cause: new CloudlessError('unavailable', details) },
  );
}

/** Returns the last lines of the error output of supervisors, or that there is none. */
function quoteErrorFile(directory: string): string {
  let text: string;
  try {
    text = readFileSync(path.join(directory, ERROR_FILE), 'utf8').trim();
  } catch (reason) {
    return `${ERROR_FILE} cannot be read: ${errorMessageOf(reason)}`;
  }
  if (text === '') return `${ERROR_FILE} is empty`;
  const lines = text.split('\n').slice(-QUOTED_LINES);
  return `${ERROR_FILE} ends with:\n${lines.map((line) => `    ${line}`).join('\n')}`;
}

/**
 * Starts the supervisor in a session of its own, without the streams and the environment of this
 * process, so that it survives the end of this process.
 */
function startSupervisor({ supervisorCommand, directory, idleMs }: LauncherOptions): {
  readonly hasExited: () => boolean;
  readonly unref: () => void;
} {
  const [file, ...args] = supervisorCommand;
  if (file === undefined)
    throw new CloudlessError('invalid', 'supervisorCommand: must not be empty');
  const errorFile = openSync(path.join(directory, ERROR_FILE), 'a', 0o600);
  const child = spawn(file, [...args, ...toSupervisorArguments(directory, idleMs)], {
    detached: true,
    stdio: ['ignore', errorFile, errorFile],
    env: {},
  });
  closeSync(errorFile);
  let hasExited = false;
  child.on('exit', () => (hasExited = true)).on('error', () => (hasExited = true));
  return { hasExited: () => hasExited, unref: () => child.unref() };
}
