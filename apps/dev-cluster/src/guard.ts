import { spawn, type ChildProcess } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { readdir, readFile, rm } from 'node:fs/promises';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { systemClock } from '@cloudless/app-kit';

/** First argument of a dev-cluster process that is the guard of another dev-cluster process. */
export const GUARD_ARGUMENT = 'guard';

/**
 * Environment variable that the programs of a dev cluster and its guard inherit. The guard finds by
 * its value the programs that were started and not registered when the dev cluster was killed.
 */
const MARK_VARIABLE = 'CLOUDLESS_DEV_CLUSTER_ID';
/** Time between SIGTERM and SIGKILL of a program that was not registered. */
const UNREGISTERED_GRACE_MS = 10_000;

/** A process that the guard ends. */
export interface GuardedProcess {
  readonly pid: number | undefined;
  /** Processes of stage 2 are ended after all processes of stage 1 have ended. */
  readonly stage: 1 | 2;
  /** Time between SIGTERM and SIGKILL. */
  readonly graceMs: number;
}

/** Messages from the dev cluster to its guard, one JSON object per line. */
type GuardMessage =
  | { readonly kind: 'started'; readonly name: string; readonly process: GuardedProcess }
  | { readonly kind: 'stopping'; readonly name: string }
  | { readonly kind: 'ended'; readonly name: string }
  | { readonly kind: 'directory'; readonly path: string };

/** Interval at which the guard checks whether a process is alive. */
const POLL_INTERVAL_MS = 50;
/**
 * Time to wait for the end of a process after SIGKILL. The kernel ends a killed process at once,
 * unless the process waits for a device that does not answer.
 */
const KILL_MS = 5_000;

/**
 * A process that outlives the dev cluster and ends its programs when the dev cluster could not, for
 * example after SIGKILL. The kernel closes the pipe to the standard input of the guard when the dev
 * cluster ends for any reason; the guard then ends the programs that are left.
 */
export class Guard {
  private constructor(private readonly child: ChildProcess) {}

  /**
   * Starts the guard in its own session, which receives neither Ctrl-C nor the hang-up of the
   * terminal.
   */
  static start(): Guard {
    const main = import.meta.url.endsWith('.ts') ? './main.ts' : './main.mjs';
    const entry = fileURLToPath(new URL(main, import.meta.url));
    process.env[MARK_VARIABLE] = randomUUID();
    const child = spawn(process.execPath, [...process.execArgv, entry, GUARD_ARGUMENT], {
      stdio: ['pipe', 'ignore', 'ignore'],
      detached: true,
    });
    // The dev cluster continues without its guard.
    for (const source of [child, child.stdin]) source.on('error', () => undefined);
    return new Guard(child);
  }

  /**
   * Registers a process that the guard ends when the dev cluster ends.
   * @param name - Identifies the process in later calls. A new process may reuse the name.
   */
  registerProcess(name: string, process: GuardedProcess): void {
    this.sendMessage({ kind: 'started', name, process });
  }

  /** Records that SIGTERM was sent to a process, so that the guard does not send it again. */
  markStopping(name: string): void {
    this.sendMessage({ kind: 'stopping', name });
  }

  /** Records that a process has ended. */
  removeProcess(name: string): void {
    this.sendMessage({ kind: 'ended', name });
  }

  /** Registers a directory that the guard removes at the end. */
  registerTemporaryDirectory(path: string): void {
    this.sendMessage({ kind: 'directory', path });
  }

  /**
   * Closes the pipe to the guard. Resolves when the guard has ended the remaining processes and
   * itself.
   */
  async close(): Promise<void> {
    if (
      this.child.pid === undefined ||
      this.child.exitCode !== null ||
      this.child.signalCode !== null
    )
      return;
    const exited = new Promise<void>((resolve) => this.child.once('close', () => resolve()));
    this.child.stdin?.end();
    await exited;
  }

  private sendMessage(message: GuardMessage): void {
    this.child.stdin?.write(`${JSON.stringify(message)}\n`);
  }
}

/**
 * Main function of the guard. Resolves when the dev cluster has ended and none of its processes is
 * left.
 * @param input - Messages of the dev cluster; ends when the dev cluster ends.
 */
export async function runGuard(input: NodeJS.ReadableStream): Promise<void> {
  const remaining = new Map<string, GuardedProcess>();
  const stopping = new Set<string>();
  const directories: string[] = [];
  // Only the end of the input ends the guard: task runners send SIGTERM to every process of a tree.
  for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const)
    process.on(signal, () => undefined);
  for await (const line of createInterface({ input })) {
    const message = parseMessage(line);
    if (message?.kind === 'started') remaining.set(message.name, message.process);
    else if (message?.kind === 'stopping') stopping.add(message.name);
    else if (message?.kind === 'ended') remaining.delete(message.name);
    else if (message?.kind === 'directory') directories.push(message.path);
  }
  const registered = new Set([...remaining.values()].map(({ pid }) => pid));
  for (const pid of await listMarkedProcesses())
    if (!registered.has(pid))
      remaining.set(`process ${pid}`, { pid, stage: 1, graceMs: UNREGISTERED_GRACE_MS });
  for (const stage of [1, 2]) {
    const stageProcesses = [...remaining].filter(([, process]) => process.stage === stage);
    await Promise.all(
      stageProcesses.map(([name, process]) => endProcess(process, stopping.has(name))),
    );
  }
  for (const path of directories) await rm(path, { recursive: true, force: true });
}

/** Returns the ids of the other processes of this dev cluster. Linux only; elsewhere none. */
async function listMarkedProcesses(): Promise<readonly number[]> {
  const mark = `${MARK_VARIABLE}=${process.env[MARK_VARIABLE] ?? ''}\0`;
  const pids = (await readdir('/proc').catch(() => [])).map(Number).filter(Number.isInteger);
  const isMarked = await Promise.all(
    pids.map(async (pid) => {
      const environment = await readFile(`/proc/${pid}/environ`, 'latin1').catch(() => '');
      return pid !== process.pid && environment.includes(mark);
    }),
  );
  return pids.filter((_, index) => isMarked[index]);
}

/** Parses a message; undefined for an incomplete last line. */
function parseMessage(line: string): GuardMessage | undefined {
  try {
    return JSON.parse(line) as GuardMessage;
  } catch {
    return undefined;
  }
}

async function endProcess({ pid, graceMs }: GuardedProcess, isStopping: boolean): Promise<void> {
  if (pid === undefined) return;
  if (!isStopping) sendSignal(pid, 'SIGTERM');
  if (await isGoneWithin(pid, graceMs)) return;
  sendSignal(pid, 'SIGKILL');
  await isGoneWithin(pid, KILL_MS);
}

/** Returns true when a process has ended within the time limit. */
async function isGoneWithin(pid: number, limitMs: number): Promise<boolean> {
  for (const until = systemClock.now() + limitMs; await isAlive(pid);) {
    if (systemClock.now() >= until) return false;
    await new Promise((resolve) => setTimeout(resolve, POLL_INTERVAL_MS));
  }
  return true;
}

/**
 * Returns true when a process runs. A process that has ended and whose parent has not collected its
 * exit code (a zombie) does not run.
 */
async function isAlive(pid: number): Promise<boolean> {
  if (!sendSignal(pid, 0)) return false;
  const stat = await readFile(`/proc/${pid}/stat`, 'utf8').catch(() => '');
  return !/\) [ZX] /.test(stat);
}

/**
 * Sends a signal; 0 only checks that the process exists.
 * @returns False when the signal cannot be sent, because the process does not exist.
 */
function sendSignal(pid: number, signal: NodeJS.Signals | 0): boolean {
  try {
    return process.kill(pid, signal);
  } catch {
    return false;
  }
}
