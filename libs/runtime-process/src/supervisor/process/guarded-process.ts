import { spawn, type ChildProcess } from 'node:child_process';
import type { Readable } from 'node:stream';
import { CloudlessError } from '@cloudless/base';
import { readStartToken } from '@cloudless/app-kit/background';
import type { ProcessReference } from '../../system/process-reference.js';

/**
 * The script of a process guard: a shell in a session of its own that starts the launch script `$2`
 * as its child, waits, and writes the exit status to the file `$1`, so that the status outlives the
 * supervisor. The guard takes less than 1 MB of memory. Its arguments do not name the command, so
 * that `pkill -f` with the name of the command does not match the guard.
 */
const GUARD_SCRIPT = `( . "$2" ) >&4 2>&5
set -- "$1" $?
echo "$2" >"$1"
exit "$2"`;

/** The process of a guard, and the files between guard and supervisor. */
export interface GuardOptions {
  readonly shell: string;
  readonly workingDir: string;
  /**
   * Confidential variables, which the main process inherits from the guard. Only names that have no
   * meaning for a shell.
   */
  readonly env: Readonly<Record<string, string>>;
  /** Path of the file for the exit status. */
  readonly endFile: string;
  /** Path of the launch script. */
  readonly scriptFile: string;
  /** Descriptors of the container's pipes. */
  readonly stdout: number;
  readonly stderr: number;
}

/** A started guard, which is about to start its child. */
export interface StartedGuard extends ProcessReference {
  readonly child: ChildProcess;
  /**
   * Resolves with the process id of the main process when the launch script has begun, so that the
   * script can be deleted. Rejects with kind `exhausted` when the guard ended before, and with
   * {@link OwnMountsError} when the process could not get its own mounts.
   */
  readonly mainPid: Promise<number>;
}

/**
 * A process could not get its own mounts, and has not begun. The message is what the tool or the
 * kernel said.
 */
export class OwnMountsError extends CloudlessError {
  constructor(message: string) {
    super('precondition', message);
  }
}

/**
 * Starts a guard. When no process can be created, `pid` is undefined and `child` emits the error.
 */
export function startGuard(
  options: GuardOptions,
): StartedGuard | { readonly child: ChildProcess; readonly pid: undefined } {
  const child = spawn(
    options.shell,
    ['-c', GUARD_SCRIPT, 'cloudless-guard', options.endFile, options.scriptFile],
    {
      cwd: options.workingDir,
      env: options.env,
      detached: true,
      stdio: ['ignore', 'ignore', 'ignore', 'pipe', options.stdout, options.stderr],
    },
  );
  const { pid } = child;
  if (pid === undefined) return { child, pid };
  const mainPid = readMainPid(child.stdio[3] as Readable);
  // The caller gets the error when it awaits `mainPid`. Until then the rejection must not count as
  // unhandled: the caller may fail before it awaits.
  mainPid.catch(() => undefined);
  return { child, pid, startToken: readStartToken(pid) ?? '', mainPid };
}

/** Reads the line that the launch script writes to descriptor 3: a process id, or an error. */
function readMainPid(pipe: Readable): Promise<number> {
  return new Promise((resolve, reject) => {
    let text = '';
    pipe.setEncoding('latin1').on('data', (chunk: string) => {
      text += chunk;
      if (text.endsWith('\n')) pipe.destroy();
    });
    pipe.on('error', () => undefined); // `close` follows
    pipe.once('close', () => {
      if (/^\d+\n$/.test(text)) resolve(Number(text));
      else if (text !== '') reject(new OwnMountsError(text.trim()));
      else
        reject(
          new CloudlessError(
            'exhausted',
            'command: the guard of the container ended before it started the process',
          ),
        );
    });
  });
}
