import { readFileSync, readlinkSync } from 'node:fs';

/** Environment and working directory of a container and of the commands in it. */
export interface LaunchContext {
  readonly env: Readonly<Record<string, string>>;
  /** Names of the variables in `env` with confidential values, which are never written to disk. */
  readonly secretNames?: readonly string[];
  /** Absolute path. */
  readonly workingDir: string;
  /**
   * Mount namespace of the main process, as {@link readMountNamespace} names it, which commands
   * enter. Absent: the mounts of the machine.
   */
  readonly mountNamespace?: string;
}

/** Splits the environment of a process into confidential and other variables. */
export function splitEnvironment({ env, secretNames = [] }: Omit<LaunchContext, 'workingDir'>): {
  readonly secret: Readonly<Record<string, string>>;
  readonly other: Readonly<Record<string, string>>;
} {
  const names = new Set(secretNames);
  const pick = (isSecret: boolean): Record<string, string> =>
    Object.fromEntries(Object.entries(env).filter(([name]) => names.has(name) === isSecret));
  return { secret: pick(true), other: pick(false) };
}

/** Returns a context for the record on disk: without the values of confidential variables. */
export function toRecordedLaunch(context: LaunchContext): LaunchContext {
  return { ...context, env: splitEnvironment(context).other };
}

/**
 * Adds the confidential variables to a recorded context, from the initial environment of the main
 * process. Where there is no `/proc`, commands in an adopted container lack these variables.
 */
export function fromRecordedLaunch(recorded: LaunchContext, pid: number): LaunchContext {
  if ((recorded.secretNames ?? []).length === 0) return recorded;
  const { secret } = splitEnvironment({ ...recorded, env: readInitialEnvironment(pid) });
  return { ...recorded, env: { ...recorded.env, ...secret } };
}

/** @see proc_pid_environ(5) */
function readInitialEnvironment(pid: number): Readonly<Record<string, string>> {
  try {
    const variables = readFileSync(`/proc/${pid}/environ`, 'utf8').split('\0');
    return Object.fromEntries(
      variables.flatMap((text) => {
        const end = text.indexOf('=');
        return end <= 0 ? [] : [[text.slice(0, end), text.slice(end + 1)] as const];
      }),
    );
  } catch {
    return {};
  }
}

/**
 * Returns the identity of the mount namespace of a process, such as `mnt:[4026532281]`; undefined
 * when the process has ended, or the kernel does not tell.
 * @see proc_pid_ns(5)
 */
export function readMountNamespace(pid: number): string | undefined {
  try {
    return readlinkSync(`/proc/${pid}/ns/mnt`);
  } catch {
    return undefined;
  }
}
