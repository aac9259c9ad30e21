import type { LaunchContext } from './launch-plan.js';

/** What `/bin/sh` of this machine needs in order to start a program with an exact environment. */
export interface ShellTools {
  /** Absolute paths. */
  readonly shell: string;
  readonly env: string;
  readonly setsid: string;
  readonly sleep: string;
  readonly grep: string;
  /** Variables that the shell exports by itself, also when they were unset. */
  readonly addedVariables: readonly string[];
}

/** What a launch script does before it becomes the program. */
export interface LaunchSteps {
  readonly command: readonly string[];
  readonly context: LaunchContext;
  /** Joins this cgroup, by its `cgroup.procs`. */
  readonly joinFile?: string | undefined;
  /** Writes its process id, as a line, to file descriptor 3, begins a session, and writes to descriptors 4 and 5. */
  readonly leadsSession: boolean;
}

/** Exit code of a script that could not join its cgroup; container engines use the same for a failure of their own. */
const NOT_JOINED = 125;
/**
 * Names that mean something to a shell or to the dynamic linker: the shell itself runs without them. Bash, for one, complains of a
 * locale that the machine does not have, in the output of the program.
 */
const SPECIAL_NAMES =
  /^(LD_.*|BASH.*|SHELLOPTS|POSIXLY_CORRECT|ENV|IFS|PS[0-9]|PWD|OLDPWD|SHLVL|_|PPID|UID|EUID|OPTIND|OPTARG|OPTERR|LINENO|FUNCNAME|GROUPS|DIRSTACK|HISTCMD|S?RANDOM|SECONDS|EPOCH.*|COMP_.*|LANG|LC_.*|CLOUDLESS_GUARD_.*)$/;

/**
 * Writes the script by which a shell becomes a program: same process, same environment as if the program were started
 * directly. The values of ordinary variables are exported by the script, so they never are arguments, which every user of the
 * machine could read; only those with names that no shell takes pass through the arguments of `env` for a moment.
 */
export function launchScript({ command, context, joinFile, leadsSession }: LaunchSteps, tools: ShellTools): string {
  const variables = Object.entries(context.env);
  const ordinary = variables.filter(([name]) => isOrdinary(name));
  const special = variables.filter(([name]) => !isOrdinary(name));
  const added = tools.addedVariables.filter((name) => context.env[name] === undefined);
  const needsEnv = special.length > 0 || added.length > 0;
  // A command named like an assignment would be one for `env`.
  const canUseEnv = leadsSession || command[0]?.includes('=') !== true;
  const words = [
    ...(needsEnv && canUseEnv ? [tools.env, ...added.flatMap((name) => ['-u', name])] : []),
    ...(needsEnv && canUseEnv ? special.map(([name, value]) => `${name}=${value}`) : []),
    ...(leadsSession ? [tools.setsid, '--'] : []),
    ...command,
  ];
  return [
    ...(leadsSession ? ['read -r CLOUDLESS_GUARD_PID CLOUDLESS_GUARD_REST </proc/self/stat'] : []),
    ...(joinFile === undefined ? [] : [`echo 0 >${quoted(joinFile)} || exit ${NOT_JOINED}`]),
    ...(leadsSession ? ['echo "$CLOUDLESS_GUARD_PID" >&3 || exit', 'unset CLOUDLESS_GUARD_PID CLOUDLESS_GUARD_REST'] : []),
    'unset PWD OLDPWD SHLVL _',
    ...ordinary.map(([name, value]) => `export ${name}=${quoted(value)}`),
    `exec ${words.map(quoted).join(' ')}${leadsSession ? ' 3>&- 4>&- 5>&-' : ''}`,
    '',
  ].join('\n');
}

function isOrdinary(name: string): boolean {
  return /^[A-Za-z_][A-Za-z0-9_]*$/.test(name) && !SPECIAL_NAMES.test(name);
}

/** One word of a shell, whatever the text holds. */
export function quoted(text: string): string {
  return `'${text.replaceAll("'", `'\\''`)}'`;
}
