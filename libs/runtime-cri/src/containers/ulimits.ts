import { readFileSync } from 'node:fs';
import { CloudlessError, errorMessageOf, sleep, type Clock } from '@cloudless/base';
import type { ContainerRequest, UlimitRequest } from '@cloudless/runtime';
import { commandLineOf, readProcess } from '../system/host-processes.js';
import { runTool } from '../system/run-tool.js';

/** Limits that can be set, with their titles in /proc/<pid>/limits. @see proc_pid_limits(5), getrlimit(2) */
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
/** These would end, or starve, the program that starts the container's processes, which has the same limits. */
const SHARED_WITH_RUNTIME = ['as', 'cpu', 'data', 'fsize', 'locks', 'rss', 'rttime'];
/** The program that starts a container has files open itself. */
const MIN_FILES = 256;
const UNLIMITED = -1;

/** @throws kind `invalid` or `unimplemented`, naming the limit. */
export function checkUlimits({ ulimits = [] }: Pick<ContainerRequest, 'ulimits'>): void {
  for (const { name, soft, hard } of ulimits) {
    if (SHARED_WITH_RUNTIME.includes(name)) throw failure('unimplemented', name, 'would limit the container runtime too');
    if (!(name in TITLES)) throw failure('invalid', name, 'is no limit');
    if (![soft, hard].every((value) => Number.isInteger(value) && value >= UNLIMITED)) {
      throw failure('invalid', name, 'must be whole numbers from -1 up');
    }
    if (hard !== UNLIMITED && (soft === UNLIMITED || soft > hard)) throw failure('invalid', name, 'soft is above hard');
    if (name === 'nofile' && soft !== UNLIMITED && soft < MIN_FILES)
      throw failure('invalid', name, `must be ${MIN_FILES} or more`);
  }
}

/**
 * Sets the limits of a sandbox whose container is not made yet. The interface of container runtimes has no field for them, but all
 * processes of a container are started by the process that holds its sandbox (containerd's shim), and inherit from there: so none
 * of them is ever without.
 * @param sandboxPid - Of the sandbox's own process.
 * @throws kind `unimplemented` when another program holds the sandbox, `precondition` when the kernel refuses.
 */
export async function limitSandbox(sandboxPid: number | undefined, ulimits: readonly UlimitRequest[]): Promise<void> {
  const holder = sandboxPid === undefined ? undefined : readProcess(sandboxPid)?.parentPid;
  if (holder === undefined || !(commandLineOf(holder)[0] ?? '').includes('containerd-shim')) {
    throw new CloudlessError('unimplemented', 'ulimits: this container runtime does not say who starts its containers');
  }
  const flags = ulimits.map(({ name, soft, hard }) => `--${name}=${textOf(soft)}:${textOf(hard)}`);
  try {
    await runTool('prlimit', ['--pid', String(holder), ...flags]);
  } catch (reason) {
    const { stderr = '' } = reason as { readonly stderr?: string };
    const why = stderr.trim() === '' ? errorMessageOf(reason) : stderr.trim();
    const message = `ulimits: cannot be set: ${why}; above those of the container runtime an agent needs CAP_SYS_RESOURCE`;
    throw new CloudlessError('precondition', message, { cause: reason });
  }
}

/**
 * Sees to it that the main process of a container has the limits that were asked for: runtimes written in some versions of Go make
 * the soft limit of open files the hard one.
 * @throws kind `precondition`, naming the limit. A process that has ended needs none.
 */
export async function confirmUlimits(
  pid: number,
  ulimits: readonly UlimitRequest[],
  clock: Clock,
  proc = '/proc',
): Promise<void> {
  for (let look = 1; ; look += 1) {
    const problem = differenceOf(readLimits(`${proc}/${pid}/limits`).split('\n'), ulimits);
    if (problem === undefined) return;
    if (look >= LOOKS || !isBeingStarted(pid)) throw problem;
    await sleep(clock, LOOK_MS);
  }
}

/** The program that starts a process may have other limits until it becomes that process, a moment after the start was answered. */
const LOOK_MS = 10;
const LOOKS = 500;

/** @see runc, `init.go`: what it calls itself until then */
function isBeingStarted(pid: number): boolean {
  const [program = '', argument] = commandLineOf(pid);
  return /runc$/.test(program) && argument === 'init';
}

function differenceOf(lines: readonly string[], ulimits: readonly UlimitRequest[]): CloudlessError | undefined {
  for (const { name, soft, hard } of ulimits) {
    const title = TITLES[name] ?? name;
    const line = lines.find((each) => each.startsWith(title));
    if (line === undefined) continue;
    const [foundSoft, foundHard] = line.slice(title.length).trim().split(/\s+/);
    if (foundSoft === textOf(soft) && foundHard === textOf(hard)) continue;
    const made = `the container runtime made ${textOf(soft)}:${textOf(hard)} into ${foundSoft}:${foundHard}`;
    return failure('precondition', name, `${made}; ask for that, or leave it out`);
  }
  return undefined;
}

function textOf(value: number): string {
  return value === UNLIMITED ? 'unlimited' : String(value);
}

function failure(kind: 'invalid' | 'unimplemented' | 'precondition', name: string, message: string): CloudlessError {
  return new CloudlessError(kind, `ulimits.${name}: ${message}`);
}

function readLimits(file: string): string {
  try {
    return readFileSync(file, 'utf8');
  } catch {
    return '';
  }
}
