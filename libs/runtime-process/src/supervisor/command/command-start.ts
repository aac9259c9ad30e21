import { rmSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { CloudlessError, errorCodeOf } from '@cloudless/base';
import { EXEC_MARK } from '../../system/marked-processes.js';
import { resolveExecutable } from '../process/launch-command.js';
import { splitEnvironment, type LaunchContext } from '../process/launch-context.js';
import { buildLaunchScript, type ShellTools } from '../process/launch-script.js';

/** Lets a command join its container before its program begins: the cgroup, the mounts or both. */
export interface ContainerJoin {
  readonly tools: ShellTools;
  /** The file `cgroup.procs` of the container's cgroup; undefined where there are no cgroups. */
  readonly joinFile: string | undefined;
  /**
   * Program and arguments that enter the mount namespace of the container and run the command after
   * them; undefined when the container has the mounts of the machine.
   */
  readonly mountEntry: readonly [program: string, ...args: string[]] | undefined;
  /** Path for the launch script of the command. */
  readonly scriptFile: string;
}

/** Arguments for the spawn of a command. */
export interface CommandStart {
  readonly file: string;
  readonly argv0: string;
  readonly args: readonly string[];
  readonly env: Readonly<Record<string, string>>;
  /**
   * Deletes the launch script, if any. Call it when the command has ended or could not be started.
   */
  readonly cleanUp: () => void;
}

/**
 * Prepares the start of a command: directly, or through a shell that first joins the cgroup of the
 * container, so that no process of the command outlives the container, and its mounts.
 * @param execId - Id of the command, which marks its processes.
 * @param join - Undefined when there is nothing to join.
 * @throws kind `invalid` when there is no such executable, `exhausted` when the file system is full.
 */
export function prepareCommand(
  command: readonly string[],
  context: LaunchContext,
  execId: string,
  join: ContainerJoin | undefined,
): CommandStart {
  const file = resolveExecutable(command, context);
  const marked = { ...context.env, [EXEC_MARK]: execId };
  const [argv0 = file, ...args] = command;
  if (join === undefined) return { file, argv0, args, env: marked, cleanUp: () => undefined };
  const { tools, joinFile, scriptFile, mountEntry } = join;
  const markedContext = { ...context, env: marked };
  const steps = {
    ...{ command, context: markedContext, joinFile, leadsSession: false },
    changesDirectory: mountEntry !== undefined, // which begins in the root directory
  };
  const deleteScript = (): void => rmSync(scriptFile, { force: true });
  try {
    writeFileSync(scriptFile, buildLaunchScript(steps, tools), { mode: 0o600 });
  } catch (cause) {
    deleteScript();
    throw toWriteError(cause, path.dirname(scriptFile));
  }
  const { secret } = splitEnvironment(markedContext);
  const start = { env: secret, cleanUp: deleteScript };
  if (mountEntry === undefined)
    return { file: tools.shell, argv0: 'sh', args: [scriptFile], ...start };
  const [program, ...entryArgs] = mountEntry;
  return { file: program, argv0: program, args: [...entryArgs, tools.shell, scriptFile], ...start };
}

/** Returns the error of a command whose launch script could not be written to a directory. */
function toWriteError(cause: unknown, directory: string): unknown {
  const code = errorCodeOf(cause) ?? '';
  if (!['ENOSPC', 'EDQUOT'].includes(code)) return cause;
  return new CloudlessError(
    'exhausted',
    `the command cannot start: the file system of ${directory} is full (no space left on device); free some space on the machine`,
    { cause },
  );
}
