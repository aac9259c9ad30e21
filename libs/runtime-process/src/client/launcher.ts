import { spawn } from 'node:child_process';
import { closeSync, openSync } from 'node:fs';
import path from 'node:path';
import { CloudlessError, errorKindOf, sleep, type Clock, type StopSignal } from '@cloudless/base';
import { toSupervisorArguments } from '../supervisor/run-supervisor.js';

export interface LauncherOptions {
  readonly directory: string;
  readonly supervisorCommand: readonly string[];
  readonly idleMs: number;
  readonly clock: Clock;
}

/** Longest wait for a new supervisor to accept connections. */
const START_TIMEOUT_MS = 15_000;
const POLL_MS = 5;

/**
 * Connects to the supervisor of a directory, and starts a supervisor when none runs. Any number of
 * clients may call this at the same time: of the supervisors that they start, one acquires the lock
 * of the directory and the others exit.
 * @throws kind `unavailable` when no supervisor accepts a connection in time. The file
 *   `supervisor.err` in the directory has its error output.
 */
export async function connectOrStart<Connected>(
  connect: () => Promise<Connected>,
  options: LauncherOptions,
  signal: StopSignal,
): Promise<Connected> {
  const { clock, directory } = options;
  const until = clock.now() + START_TIMEOUT_MS;
  let child: { readonly hasExited: () => boolean; readonly unref: () => void } | undefined;
  try {
    for (;;) {
      try {
        return await connect();
      } catch (reason) {
        if (errorKindOf(reason) !== 'unavailable') throw reason;
        if (clock.now() >= until) {
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
  const errors = openSync(path.join(directory, 'supervisor.err'), 'a', 0o600);
  const child = spawn(file, [...args, ...toSupervisorArguments(directory, idleMs)], {
    detached: true,
    stdio: ['ignore', errors, errors],
    env: {},
  });
  closeSync(errors);
  let exited = false;
  child.on('exit', () => (exited = true)).on('error', () => (exited = true));
  return { hasExited: () => exited, unref: () => child.unref() };
}
