import { spawn, type ChildProcess } from 'node:child_process';
import { readFile, rm } from 'node:fs/promises';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { systemClock } from '@cloudless/app-kit';

/** First argument of a dev-cluster process that is the guard of another dev-cluster process. */
export const GUARD_ARGUMENT = 'guard';

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

const POLL_INTERVAL_MS = 50;
/** The kernel ends a killed process within this time, unless a device does not answer. */
const KILL_MS = 5_000;

/**
 * A process that outlives the dev cluster and ends its programs when the dev cluster could not, as
 * after SIGKILL. Whatever ends the dev cluster, the kernel then closes the pipe to the guard's
 * standard input.
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
    const child = spawn(process.execPath, [...process.execArgv, entry, GUARD_ARGUMENT], {
      stdio: ['pipe', 'ignore', 'ignore'],
      detached: true,
    });
    // The dev cluster continues without its guard.
    for (const source of [child, child.stdin]) source.on('error', () => undefined);
    return new Guard(child);
  }

  registerProcess(name: string, process: GuardedProcess): void {
    this.sendMessage({ kind: 'started', name, process });
  }

  /**
   * Records that SIGTERM was sent. The guard must not send a second one, which would end the
   * process without an orderly stop.
   */
  markStopping(name: string): void {
    this.sendMessage({ kind: 'stopping', name });
  }

  removeProcess(name: string): void {
    this.sendMessage({ kind: 'ended', name });
  }

  /** Registers a directory that is removed at the end of the cluster. */
  registerTemporaryDirectory(path: string): void {
    this.sendMessage({ kind: 'directory', path });
  }

  /** Resolves when the guard has found nothing left to end, and has ended itself. */
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

  private sendMessage(notice: GuardMessage): void {
    this.child.stdin?.write(`${JSON.stringify(notice)}\n`);
  }
}

/**
 * Main function of the guard. Returns when the dev cluster has ended and none of its processes is
 * left.
 */
export async function runGuard(input: NodeJS.ReadableStream): Promise<void> {
  const left = new Map<string, GuardedProcess>();
  const stopping = new Set<string>();
  const directories: string[] = [];
  for await (const line of createInterface({ input })) {
    const notice = parse(line);
    if (notice?.kind === 'started') left.set(notice.name, notice.process);
    else if (notice?.kind === 'stopping') stopping.add(notice.name);
    else if (notice?.kind === 'ended') left.delete(notice.name);
    else if (notice?.kind === 'directory') directories.push(notice.path);
  }
  for (const stage of [1, 2]) {
    const ofStage = [...left].filter(([, process]) => process.stage === stage);
    await Promise.all(ofStage.map(([name, process]) => endProcess(process, stopping.has(name))));
  }
  for (const path of directories) await rm(path, { recursive: true, force: true });
}

/** The last line may be incomplete. */
function parse(line: string): GuardMessage | undefined {
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

async function isGoneWithin(pid: number, limitMs: number): Promise<boolean> {
  for (const until = systemClock.now() + limitMs; await isAlive(pid);) {
    if (systemClock.now() >= until) return false;
    await new Promise((resolve) => setTimeout(resolve, POLL_INTERVAL_MS));
  }
  return true;
}

/**
 * A process that ended but was not collected by its parent (process 1 of a container) is not alive.
 */
async function isAlive(pid: number): Promise<boolean> {
  if (!sendSignal(pid, 0)) return false;
  const stat = await readFile(`/proc/${pid}/stat`, 'utf8').catch(() => '');
  return !/\) [ZX] /.test(stat);
}

function sendSignal(pid: number, signal: NodeJS.Signals | 0): boolean {
  try {
    return process.kill(pid, signal);
  } catch {
    return false;
  }
}
