import { readFileSync } from 'node:fs';
import { CloudlessError, sleep, type Clock } from '@cloudless/base';
import type { ContainerRequest, UlimitRequest } from '@cloudless/runtime';
import { readCommandLine } from '../system/host-processes.js';
import { errorTextOf, runTool } from '../system/run-tool.js';
import { readSandboxProcess } from './sandbox-process.js';

/**
 * Ulimits that a request may set, with the title of their line in /proc/<pid>/limits.
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
 * Ulimits that a request may not set: the shim, which starts the processes of the container, gets
 * the same ulimits, and these would end or starve the shim.
 */
const SHARED_WITH_RUNTIME = ['as', 'cpu', 'data', 'fsize', 'locks', 'rss', 'rttime'];
/** Smallest soft limit of open files: the program that starts a container has open files itself. */
const MIN_FILES = 256;
/** Value of a request for no limit. */
const UNLIMITED = -1;

/**
 * Validates the requested ulimits.
 * @throws kind `invalid` or `unimplemented`, naming the ulimit.
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
 * Sets the ulimits of a sandbox whose container is not created yet, because the Container Runtime
 * Interface has no field for ulimits. The parent of the sandbox process (containerd's shim) gets
 * the ulimits. The shim later starts the processes of the container, which inherit them.
 * @param sandboxPid - Process id of the sandbox; undefined when the runtime does not report it.
 * @throws kind `unimplemented` when the parent of the sandbox process is no containerd shim,
 *   `precondition` when the kernel refuses the ulimits.
 */
export async function setSandboxUlimits(
  sandboxPid: number | undefined,
  ulimits: readonly UlimitRequest[],
): Promise<void> {
  const shimPid = readSandboxProcess(sandboxPid)?.parentPid;
  if (shimPid === undefined) {
    throw new CloudlessError(
      'unimplemented',
      'ulimits: this container runtime does not report the process that starts its containers; use containerd',
    );
  }
  const flags = ulimits.map(
    ({ name, soft, hard }) => `--${name}=${formatLimit(soft)}:${formatLimit(hard)}`,
  );
  try {
    await runTool('prlimit', ['--pid', String(shimPid), ...flags]);
  } catch (reason) {
    const message = `ulimits: the limits cannot be set: ${errorTextOf(reason)}; to exceed those of the container runtime an agent needs CAP_SYS_RESOURCE`;
    throw new CloudlessError('precondition', message, { cause: reason });
  }
}

/**
 * Checks that the main process of a container has the requested ulimits: container runtimes that
 * are built with some versions of Go raise the soft limit of open files to the hard limit. A
 * process that has ended is not checked.
 * @param proc - Mount point of `proc`, for tests.
 * @throws kind `precondition`, naming the ulimit.
 */
export async function confirmUlimits(
  pid: number,
  ulimits: readonly UlimitRequest[],
  clock: Clock,
  proc = '/proc',
): Promise<void> {
  for (let attempt = 1; ; attempt += 1) {
    const difference = findDifference(readLimits(`${proc}/${pid}/limits`).split('\n'), ulimits);
    if (difference === undefined) return;
    if (attempt >= MAX_ATTEMPTS || !isBeingStarted(pid)) throw difference;
    await sleep(clock, RETRY_MS);
  }
}

/**
 * Interval and number of the checks, 5 s together: until runc executes the program of the
 * container, the main process is runc itself, which may have other ulimits.
 */
const RETRY_MS = 10;
const MAX_ATTEMPTS = 500;

/**
 * Returns true while the process is still runc, which executes the program of the container next.
 * @see runc, `init.go`
 */
function isBeingStarted(pid: number): boolean {
  const [program = '', argument] = readCommandLine(pid);
  return /runc$/.test(program) && argument === 'init';
}

/** Returns the error for the first ulimit that differs; undefined when all are as requested. */
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
