import { rmSync, writeFileSync } from 'node:fs';
import { EXEC_MARK } from '../../system/marked-processes.js';
import { resolveExecutable } from '../process/launch-command.js';
import { splitEnvironment, type LaunchContext } from '../process/launch-context.js';
import { buildLaunchScript, type ShellTools } from '../process/launch-script.js';

/** Lets a command join the cgroup of its container before its program begins. */
export interface CgroupJoin {
  readonly tools: ShellTools;
  /** The file `cgroup.procs` of the container's cgroup. */
  readonly joinFile: string;
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
 * container, so that no process of the command outlives the container.
 * @param execId - Id of the command, which marks its processes.
 * @param join - Undefined where there are no cgroups.
 * @throws kind `invalid` when there is no such executable.
 */
export function prepareCommand(
  command: readonly string[],
  context: LaunchContext,
  execId: string,
  join: CgroupJoin | undefined,
): CommandStart {
  const file = resolveExecutable(command, context);
  const marked = { ...context.env, [EXEC_MARK]: execId };
  const [argv0 = file, ...args] = command;
  if (join === undefined) return { file, argv0, args, env: marked, cleanUp: () => undefined };
  const { tools, joinFile, scriptFile } = join;
  const markedContext = { ...context, env: marked };
  const steps = { command, context: markedContext, joinFile, leadsSession: false };
  writeFileSync(scriptFile, buildLaunchScript(steps, tools), { mode: 0o600 });
  const { secret } = splitEnvironment(markedContext);
  const deleteScript = (): void => rmSync(scriptFile, { force: true });
  return { file: tools.shell, argv0: 'sh', args: [scriptFile], env: secret, cleanUp: deleteScript };
}
