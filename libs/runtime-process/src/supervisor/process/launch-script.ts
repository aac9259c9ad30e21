import { quoteForShell } from '@cloudless/base';
import { UNSHARE_ARGUMENTS, type OwnMounts } from '../resolver/own-mounts.js';
import { splitEnvironment, type LaunchContext } from './launch-context.js';

/** The programs of this machine with which guards and launch scripts work. */
export interface ShellTools {
  /** Absolute path, like those of the other programs. */
  readonly shell: string;
  readonly env: string;
  readonly setsid: string;
  readonly sleep: string;
  readonly grep: string;
  /** Names of the variables that the shell exports on its own, even after `unset`. */
  readonly addedVariables: readonly string[];
}

/** What a launch script prepares and executes. */
export interface LaunchScriptOptions {
  readonly command: readonly string[];
  readonly context: LaunchContext;
  /** The file `cgroup.procs` of the cgroup to join; undefined joins no cgroup. */
  readonly joinFile?: string | undefined;
  /**
   * True for a main process under a guard: the script writes its process id, as a line, to
   * descriptor 3, begins a session, and closes descriptors 3 to 5 for the program.
   */
  readonly leadsSession: boolean;
  /** Mounts that only this process and its descendants see. Only together with `leadsSession`. */
  readonly ownMounts?: OwnMounts | undefined;
  /** True changes to the working directory, for a script that begins in another directory. */
  readonly changesDirectory?: boolean;
}

/**
 * Exit code of a script that could not start its program. Container engines use the same code for
 * their own failures.
 */
const PREPARATION_FAILED = 125;
/**
 * Variables that a shell or the dynamic linker interprets: the shell itself runs without them. For
 * example, bash writes a warning into the output of the program when the locale does not exist.
 */
const SPECIAL_NAMES =
  /^(LD_.*|BASH.*|SHELLOPTS|POSIXLY_CORRECT|ENV|IFS|PS[0-9]|PWD|OLDPWD|SHLVL|_|PPID|UID|EUID|OPTIND|OPTARG|OPTERR|LINENO|FUNCNAME|GROUPS|DIRSTACK|HISTCMD|S?RANDOM|SECONDS|EPOCH.*|COMP_.*|LANG|LC_.*|CLOUDLESS_GUARD_.*)$/;

/**
 * Creates the script with which a shell executes a program in the same process, with the environment
 * that a start without a shell would give. The script exports ordinary variables, so their values
 * are never arguments, which every user of the machine can read. Only variables that a shell does
 * not accept or uses itself are arguments of `env` for a moment. The script is a file, so
 * confidential variables are not in the script: the shell has them in its environment.
 */
export function buildLaunchScript(
  { command, context, joinFile, leadsSession, ownMounts, changesDirectory }: LaunchScriptOptions,
  tools: ShellTools,
): string {
  const variables = Object.entries(splitEnvironment(context).other);
  const ordinary = variables.filter(([name]) => isOrdinaryVariable(name));
  const special = variables.filter(([name]) => !isOrdinaryVariable(name));
  const addedNames = tools.addedVariables.filter((name) => context.env[name] === undefined);
  const needsEnv = special.length > 0 || addedNames.length > 0;
  // `env` would take a command with `=` in its name as an assignment.
  const canUseEnv = leadsSession || command[0]?.includes('=') !== true;
  const words = [
    ...(needsEnv && canUseEnv ? [tools.env, ...addedNames.flatMap((name) => ['-u', name])] : []),
    ...(needsEnv && canUseEnv ? special.map(([name, value]) => `${name}=${value}`) : []),
    ...(leadsSession ? [tools.setsid, '--'] : []),
    ...command,
  ];
  return [
    ...(ownMounts === undefined ? [] : createMountLines(ownMounts, tools.shell)),
    ...(changesDirectory === true
      ? [`cd ${quoteForShell(context.workingDir)} || exit ${PREPARATION_FAILED}`]
      : []),
    ...(leadsSession ? ['read -r CLOUDLESS_GUARD_PID CLOUDLESS_GUARD_REST </proc/self/stat'] : []),
    ...(joinFile === undefined
      ? []
      : [`echo 0 >${quoteForShell(joinFile)} || exit ${PREPARATION_FAILED}`]),
    ...(leadsSession
      ? [
          'echo "$CLOUDLESS_GUARD_PID" >&3 || exit',
          'unset CLOUDLESS_GUARD_PID CLOUDLESS_GUARD_REST',
        ]
      : []),
    'unset PWD OLDPWD SHLVL _',
    ...ordinary.map(([name, value]) => `export ${name}=${quoteForShell(value)}`),
    `exec ${words.map(quoteForShell).join(' ')}${leadsSession ? ' 3>&- 4>&- 5>&-' : ''}`,
    '',
  ].join('\n');
}

/**
 * Creates the lines with which a launch script continues in a mount namespace of its own, in the same
 * process: the script runs twice, the second time with the argument `entered`. A failure is text on
 * descriptor 3 instead of a process id; the program has not begun then.
 */
function createMountLines({ tools, mounts }: OwnMounts, shell: string): readonly string[] {
  const enter = [tools.unshare, ...UNSHARE_ARGUMENTS, shell].map(quoteForShell).join(' ');
  return [
    `[ "$1" = entered ] || exec ${enter} "$2" entered 2>&3`,
    ...mounts.map(({ source, target }) => {
      const words = [tools.mount, '--bind', source, target].map(quoteForShell).join(' ');
      return `CLOUDLESS_GUARD_REST=$(${words} 2>&1) || { echo "$CLOUDLESS_GUARD_REST" >&3; exit ${PREPARATION_FAILED}; }`;
    }),
    'exec 2>&5',
  ];
}

/** Returns true for a variable that a shell can export without an effect on the shell itself. */
export function isOrdinaryVariable(name: string): boolean {
  return /^[A-Za-z_][A-Za-z0-9_]*$/.test(name) && !SPECIAL_NAMES.test(name);
}
