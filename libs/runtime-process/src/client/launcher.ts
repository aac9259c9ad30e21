import { spawn } from 'node:child_process';
import { closeSync, openSync } from 'node:fs';
import path from 'node:path';
import { CloudlessError, errorKindOf, sleep, type Clock, type StopSignal } from '@cloudless/base';
import { toSupervisorArguments } from '../supervisor/run-supervisor.js';

export interface LauncherOptions {
  readonly directory: string;
  /** Program and arguments, to which {@link toSupervisorArguments} are appended. */
  readonly supervisorCommand: readonly string[];
  /** Milliseconds without clients and running containers after which the supervisor exits. */
  readonly idleMs: number;
  readonly clock: Clock;
}

/** Longest wait for a new supervisor to accept connections. */
const START_TIMEOUT_MS = 15_000;
/** Delay between attempts to connect to the new supervisor. */
const POLL_MS = 5;

/**
 * Connects to the supervisor of a directory, and starts a supervisor when none runs. Any number of
 * clients may call this function at the same time: of the supervisors that they start, one acquires
 * the lock of the directory and the others exit.
 * @param connect - Called until it does not fail with kind `unavailable`. Its other errors are
 *   thrown.
 * @throws kind `unavailable` when no supervisor accepts a connection within 15 s. The file
 *   `supervisor.err` in the directory has its error output.
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
          throw new CloudlessError(
            'unavailable',
            'the process supervisor does not answer: see supervisor.err in its directory',
            {
              // For logs only: API callers must not see where the agent keeps its data.
              cause: new CloudlessError('unavailable', `no supervisor answers in ${directory}`, {
                cause: reason,
              }),
            },
          );
        }
      }
      if (child === undefined || child.hasExited()) child = startSupervisor(options);
      await sleep(clock, POLL_MS, signal);
    }
  } finally {
    child?.unref();
  }
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
  const errorFile = openSync(path.join(directory, 'supervisor.err'), 'a', 0o600);
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
