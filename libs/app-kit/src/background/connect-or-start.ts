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

/** A program that runs in the background, in a session of its own, and outlives its clients. */
export interface BackgroundProgram {
  /** Noun phrase for messages, such as `process supervisor`. */
  readonly title: string;
  /** Directory of the program, with its socket and its error output. */
  readonly directory: string;
  /** Program and arguments. */
  readonly command: readonly string[];
  /** File in `directory` for the error output. */
  readonly errorFile: string;
  /** Returns true when an aborted wait for the program keeps the program. Default: false. */
  readonly outlivesAbort?: () => boolean;
}

/**
 * Longest wait for a new program to accept connections. A start takes 0.2 s; from source, with
 * other starts on a busy machine, it took more than 15 s.
 */
const START_TIMEOUT_MS = 60_000;
/** Number of lines of the error output that a message quotes. */
const QUOTED_LINES = 5;
/** Delay between attempts to connect to the new program. */
const POLL_MS = 5;

/**
 * Connects to a background program, and starts the program when none runs. Any number of clients may
 * call this function at the same time: the programs that they start compete for the lock of the
 * directory, and all but one exit. When `signal` is aborted before the program answers, the program
 * that this process has started gets SIGTERM, unless it outlives the abort.
 * @param connect - Called until it does not fail with kind `unavailable`. Its other errors are
 *   thrown.
 * @param started - The program that this process has started before the call, if it has.
 * @throws kind `unavailable` when no program accepts a connection within 60 s. The cause quotes the
 *   end of the error output. {@link StoppedError} when `signal` is aborted.
 */
export async function connectOrStart<Connected>(
  connect: () => Promise<Connected>,
  program: BackgroundProgram,
  clock: Clock,
  signal: StopSignal,
  started?: StartedProgram,
): Promise<Connected> {
  const deadlineMs = clock.now() + START_TIMEOUT_MS;
  let child = started;
  try {
    for (;;) {
      try {
        return await connect();
      } catch (reason) {
        if (errorKindOf(reason) !== 'unavailable') throw reason;
        if (clock.now() >= deadlineMs) throw createNoAnswerError(program, reason);
      }
      if (child === undefined || child.hasExited()) child = startBackgroundProgram(program);
      await sleep(clock, POLL_MS, signal);
    }
  } catch (reason) {
    if (signal.aborted && program.outlivesAbort?.() !== true) child?.terminate();
    throw reason;
  } finally {
    child?.unref();
  }
}

/** Creates the error for a program that does not answer. */
function createNoAnswerError(program: BackgroundProgram, reason: unknown): CloudlessError {
  const { title, directory } = program;
  // For logs only: API callers must not see where the agent keeps its data.
  const details = `no ${title} answers in ${directory} (${errorMessageOf(reason)}); ${quoteErrorFile(program)}`;
  return new CloudlessError(
    'unavailable',
    `the ${title} does not answer within ${START_TIMEOUT_MS / 1_000} s: it cannot start, or the machine is too busy`,
    { cause: new CloudlessError('unavailable', details) },
  );
}

/** Returns the last lines of the error output, or that there is none. */
function quoteErrorFile({ directory, errorFile }: BackgroundProgram): string {
  let text: string;
  try {
    text = readFileSync(path.join(directory, errorFile), 'utf8').trim();
  } catch (reason) {
    return `${errorFile} cannot be read: ${errorMessageOf(reason)}`;
  }
  if (text === '') return `${errorFile} is empty`;
  const lines = text.split('\n').slice(-QUOTED_LINES);
  return `${errorFile} ends with:\n${lines.map((line) => `    ${line}`).join('\n')}`;
}

/** A program that this process has started. */
export interface StartedProgram {
  readonly hasExited: () => boolean;
  /** Sends SIGTERM. */
  readonly terminate: () => void;
  /** Lets this process end before the program. */
  readonly unref: () => void;
}

/**
 * Starts a program in a session of its own, without the streams and the environment of this process,
 * so that the program survives the end of this process.
 */
export function startBackgroundProgram(program: BackgroundProgram): StartedProgram {
  const [file, ...args] = program.command;
  if (file === undefined)
    throw new CloudlessError('invalid', `the command of the ${program.title} must not be empty`);
  const errorFile = openSync(path.join(program.directory, program.errorFile), 'a', 0o600);
  const child = spawn(file, args, {
    detached: true,
    stdio: ['ignore', errorFile, errorFile],
    env: {},
  });
  closeSync(errorFile);
  let hasExited = false;
  child.on('exit', () => (hasExited = true)).on('error', () => (hasExited = true));
  return {
    hasExited: () => hasExited,
    terminate: () => void child.kill('SIGTERM'),
    unref: () => child.unref(),
  };
}
