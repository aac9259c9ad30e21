import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { silentLog } from '@cloudless/base';
import { toShellScript, type Behaviour, type RuntimeMachine } from '@cloudless/runtime/conformance';
import { systemClock, systemRandom } from '@cloudless/app-kit';
import { readStartToken } from '@cloudless/app-kit/background';
import { openProcessRuntime, type ProcessRuntime, type ProcessRuntimeOptions } from '../index.js';
import { killMarkedProcesses, findMarkedProcesses } from '../system/marked-processes.js';
import { killProcess } from '../system/process-reference.js';
import { bundleProgram } from './bundle-program.js';

/** Command by which a spec starts a supervisor of the current source. */
export const SUPERVISOR_COMMAND = bundleProgram('supervisor-main');
/** Small, so that a few thousand lines make the log rotate. */
const LOG_FILE_BYTES = 64 * 1024;
/** Interval of {@link waitUntil}. */
const POLL_MS = 5;

/** A machine with real processes in a directory of its own. */
export interface RealMachine extends RuntimeMachine {
  /** Removes all containers and closes all runtimes but the current one. */
  reset(): Promise<void>;
  readonly runtime: ProcessRuntime;
  /** Directory of the runtime. */
  readonly directory: string;
  reopen(): Promise<ProcessRuntime>;
  /** Opens another runtime on the same directory; `dispose` closes it. */
  openAnother(): Promise<ProcessRuntime>;
  readChildPid(name: string): number;
}

/** Options for the runtime of a spec. */
export function createRuntimeOptions(directory: string): ProcessRuntimeOptions {
  return {
    directory,
    supervisorCommand: SUPERVISOR_COMMAND,
    clock: systemClock,
    random: systemRandom,
    log: silentLog,
    logFileBytes: LOG_FILE_BYTES,
    idleMs: 2_000,
  };
}

/** Opens a runtime in a fresh directory. */
export async function openRealMachine(
  overrides: Partial<ProcessRuntimeOptions> = {},
): Promise<RealMachine> {
  const home = mkdtempSync(path.join(tmpdir(), 'cloudless-process-'));
  const directory = path.join(home, 'runtime');
  const options = { ...createRuntimeOptions(directory), ...overrides };
  let runtime = await openProcessRuntime(options);
  const openedRuntimes = [runtime];
  const supervisorPids = new Set<number>([await runtime.supervisorPid()]);
  const open = async (): Promise<ProcessRuntime> => {
    const next = await openProcessRuntime(options);
    openedRuntimes.push(next);
    supervisorPids.add(await next.supervisorPid());
    return next;
  };
  const readChildPid = (name: string): number =>
    Number(readFileSync(path.join(home, `child-${name}`), 'utf8'));
  return {
    directory,
    get runtime() {
      return runtime;
    },
    command: (behaviour: Behaviour) => ['/bin/sh', '-c', toShellScript(behaviour, home)],
    openGate: async (name) => writeFileSync(path.join(home, `gate-${name}`), ''),
    readChildPid,
    waitForChildStart: (name) => waitUntil(() => existsSync(path.join(home, `child-${name}`))),
    waitForChildEnd: (name) => waitUntil(() => readStartToken(readChildPid(name)) === undefined),
    reopen: async () => {
      await runtime.close();
      runtime = await open();
      return runtime;
    },
    openAnother: open,
    advanceTime: async () => undefined,
    reset: async () => {
      for (const each of openedRuntimes.splice(0)) if (each !== runtime) await each.close();
      openedRuntimes.push(runtime);
      await Promise.all(
        (await runtime.list()).map(async ({ containerId }) => {
          await runtime.stop(containerId, 0);
          await runtime.remove(containerId);
        }),
      );
      const files = readdirSync(home).map((name) => path.join(home, name));
      for (const file of files) if (file !== directory) rmSync(file, { force: true });
    },
    dispose: async () => {
      // Close first: a runtime that loses its supervisor would start another one.
      for (const each of openedRuntimes) await each.close();
      await (await openProcessRuntime(options)).shutdown().catch(() => undefined);
      for (const pid of supervisorPids) killProcess(pid);
      killMarkedProcesses(({ pid }) => environmentContains(pid, home));
      rmSync(home, { recursive: true, force: true });
    },
  };
}

/** Polls until a condition holds that only the operating system can report. */
export async function waitUntil(condition: () => boolean): Promise<void> {
  while (!condition()) await new Promise<void>((resolve) => systemClock.setTimer(POLL_MS, resolve));
}

/** Lists the ids of the running container processes of a machine. */
export function findProcesses(machine: Pick<RealMachine, 'directory'>): readonly number[] {
  return findMarkedProcesses()
    .map(({ pid }) => pid)
    .filter((pid) => environmentContains(pid, path.dirname(machine.directory)));
}

function environmentContains(pid: number, home: string): boolean {
  try {
    return readFileSync(`/proc/${pid}/environ`, 'latin1').includes(home);
  } catch {
    return false;
  }
}
