import { readFileSync } from 'node:fs';
import { CloudlessError, errorMessageOf, sleep, type Clock } from '@cloudless/base';
import type { ContainerRequest, UlimitRequest } from '@cloudless/runtime';
import { readCommandLine, readProcess } from '../system/host-processes.js';
import { runTool } from '../system/run-tool.js';

/**
 * Limits that can be set, with their titles in /proc/<pid>/limits.
 * @see proc_pid_limits(5), getrlimit(2)
 */
const TITLES: Readonly<Record<string, string>> = {
  core: 'Max core file size',
  memlock: 'Max locked memory',
  msgqueue: 'Max msgqueue size',
  nice: 'Max nice priority',
  nofile: 'Max open files',
  nproc: 'Max processes',
  rtprio: 'Max realtime priority',
  sigpending: 'Max pending signals',
  stack: 'Max stack size',
};
/**
 * Limits that would end or starve the program that starts the container's processes, as that
 * program has the same limits.
 */
const SHARED_WITH_RUNTIME = ['as', 'cpu', 'data', 'fsize', 'locks', 'rss', 'rttime'];
/** Smallest limit of open files: the program that starts a container has open files itself. */
const MIN_FILES = 256;
const UNLIMITED = -1;

/**
 * Validates the requested limits.
 * @throws kind `invalid` or `unimplemented`, naming the limit.
 */
export function checkUlimits({ ulimits = [] }: Pick<ContainerRequest, 'ulimits'>): void {
  for (const { name, soft, hard } of ulimits) {
    if (SHARED_WITH_RUNTIME.includes(name))
      throw createUlimitError('unimplemented', name, 'would limit the container runtime too');
    if (!(name in TITLES))
      throw createUlimitError(
        'invalid',
        name,
        `is not a known limit: use one of ${Object.keys(TITLES).join(', ')}`,
      );
    if (![soft, hard].every((value) => Number.isInteger(value) && value >= UNLIMITED)) {
      throw createUlimitError('invalid', name, 'must be whole numbers from -1 up');
    }
    if (hard !== UNLIMITED && (soft === UNLIMITED || soft > hard))
      throw createUlimitError('invalid', name, 'soft is above hard');
    if (name === 'nofile' && soft !== UNLIMITED && soft < MIN_FILES)
      throw createUlimitError('invalid', name, `must be ${MIN_FILES} or more`);
  }
}

/**
 * Sets the limits of a sandbox whose container is not created yet. The container runtime interface
 * has no field for them. All processes of a container inherit the limits of the process that holds
 * the sandbox (containerd's shim), so every process of the container has them from its first
 * moment.
 * @param sandboxPid - Process id of the sandbox.
 * @throws kind `unimplemented` when another program holds the sandbox, `precondition` when the
 *   kernel refuses.
 */
export async function limitSandbox(
  sandboxPid: number | undefined,
  ulimits: readonly UlimitRequest[],
): Promise<void> {
  const holder = sandboxPid === undefined ? undefined : readProcess(sandboxPid)?.parentPid;
  if (holder === undefined || !(readCommandLine(holder)[0] ?? '').includes('containerd-shim')) {
    throw new CloudlessError(
      'unimplemented',
      'ulimits: this container runtime does not report the process that starts its containers; use containerd',
    );
  }
  const flags = ulimits.map(
    ({ name, soft, hard }) => `--${name}=${formatLimit(soft)}:${formatLimit(hard)}`,
  );
  try {
    await runTool('prlimit', ['--pid', String(holder), ...flags]);
  } catch (reason) {
    const { stderr = '' } = reason as { readonly stderr?: string };
    const why = stderr.trim() === '' ? errorMessageOf(reason) : stderr.trim();
    const message = `ulimits: the limits cannot be set: ${why}; to exceed those of the container runtime an agent needs CAP_SYS_RESOURCE`;
    throw new CloudlessError('precondition', message, { cause: reason });
  }
}

/**
 * Checks that the main process of a container has the requested limits: container runtimes that are
 * built with some versions of Go raise the soft limit of open files to the hard limit. A process
 * that has ended is not checked.
 * @throws kind `precondition`, naming the limit.
 */
export async function confirmUlimits(
  pid: number,
  ulimits: readonly UlimitRequest[],
  clock: Clock,
  proc = '/proc',
): Promise<void> {
  for (let attempt = 1; ; attempt += 1) {
    const problem = findDifference(readLimits(`${proc}/${pid}/limits`).split('\n'), ulimits);
    if (problem === undefined) return;
    if (attempt >= MAX_ATTEMPTS || !isBeingStarted(pid)) throw problem;
    await sleep(clock, RETRY_MS);
  }
}

/**
 * The program that starts a container may have other limits for a moment, until it executes the
 * program of the container.
 */
const RETRY_MS = 10;
const MAX_ATTEMPTS = 500;

/** Whether the process is still runc, which executes the program next.
@see runc, `init.go` */
function isBeingStarted(pid: number): boolean {
  const [program = '', argument] = readCommandLine(pid);
  return /runc$/.test(program) && argument === 'init';
}

function findDifference(
  lines: readonly string[],
  ulimits: readonly UlimitRequest[],
): CloudlessError | undefined {
  for (const { name, soft, hard } of ulimits) {
    const title = TITLES[name] ?? name;
    const line = lines.find((each) => each.startsWith(title));
    if (line === undefined) continue;
    const [foundSoft, foundHard] = line.slice(title.length).trim().split(/\s+/);
    if (foundSoft === formatLimit(soft) && foundHard === formatLimit(hard)) continue;
    const found = `${foundSoft}:${foundHard}`;
    const message = `the container runtime set ${found} instead of ${formatLimit(soft)}:${formatLimit(hard)}; request ${found}, or omit the limit`;
    return createUlimitError('precondition', name, message);
  }
  return undefined;
}

function formatLimit(value: number): string {
  return value === UNLIMITED ? 'unlimited' : String(value);
}

function createUlimitError(
  kind: 'invalid' | 'unimplemented' | 'precondition',
  name: string,
  message: string,
): CloudlessError {
  return new CloudlessError(kind, `ulimits.${name}: ${message}`);
}

function readLimits(file: string): string {
  try {
    return readFileSync(file, 'utf8');
  } catch {
    return '';
  }
}
