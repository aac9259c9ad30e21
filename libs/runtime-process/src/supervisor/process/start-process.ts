import { spawn } from 'node:child_process';
import { closeSync, constants, openSync, rmSync, writeFileSync } from 'node:fs';
import type { Clock } from '@cloudless/base';
import type { ContainerRequest } from '@cloudless/runtime';
import { signalGroup, readStartToken } from '@cloudless/app-kit/background';
import type { Cgroup } from '../../system/cgroups.js';
import { killProcess } from '../../system/process-reference.js';
import { requireStartLease } from '../../wire/start-lease.js';
import { layout } from '../container/container-paths.js';
import { writeRecord } from '../container/container-record.js';
import type { OwnMounts } from '../resolver/own-mounts.js';
import { OwnMountsError, startGuard } from './guarded-process.js';
import { toSpawnError } from './launch-command.js';
import { readMountNamespace, splitEnvironment, type LaunchContext } from './launch-context.js';
import { buildLaunchScript, type ShellTools } from './launch-script.js';
import { MainProcess } from './main-process.js';
import { toProcessEnd, fromShellStatus, type ProcessEnd } from './process-end.js';

/** The command of a container whose files exist. */
export interface LaunchCommand {
  readonly request: Pick<ContainerRequest, 'command' | 'args' | 'lease'>;
  readonly context: LaunchContext;
  /** Executable file of the command. */
  readonly file: string;
  /** Directory of the container. */
  readonly folder: string;
  readonly cgroup: Cgroup | undefined;
  /** Mounts that only the process sees. Undefined: those of the machine alone. */
  readonly ownMounts?: OwnMounts | undefined;
}

/** Receives the end of a main process. */
export interface ProcessEndListener {
  readonly onEnded: (end: ProcessEnd) => void;
  /** Called when the guard was killed, while the process may still run. */
  readonly onGuardLost: () => void;
}

/** A main process that was started and may already have ended. */
export interface StartedProcess {
  readonly main: MainProcess;
  /** Milliseconds since the Unix epoch. */
  readonly startedAtMs: number;
  /** Set when the process has its own mounts. See {@link LaunchContext.mountNamespace}. */
  readonly mountNamespace?: string | undefined;
  /** Set when the process was started without the requested own mounts: the reason. */
  readonly mountProblem?: string;
  /**
   * Sets the listener, of which one function is called once, also when the process has already
   * ended; never before this method returns. Call this method once.
   */
  onEnd(listener: ProcessEndListener): void;
}

/** Arguments of {@link startMainProcess} beside the command. */
export interface ProcessDeps {
  readonly clock: Clock;
  /** Time on `clock` from which the lease of the request counts. */
  readonly acceptedAtMs: number;
  /** Undefined where the machine lacks a tool; processes then have no guard. */
  readonly tools?: ShellTools | undefined;
}

/**
 * Starts the main process of a container, under a guard where the machine has the tools for it.
 * @throws kind `invalid` or `exhausted` when the process cannot be started, `unavailable` when its
 *   lease has ended; no process is left then.
 */
export async function startMainProcess(
  command: LaunchCommand,
  deps: ProcessDeps,
): Promise<StartedProcess> {
  // Opened for reading and writing, so that the process itself keeps the pipe open and gets no
  // SIGPIPE while no supervisor runs.
  const pipes = (['stdout', 'stderr'] as const).map((stream) =>
    openSync(layout.pipe(command.folder, stream), constants.O_RDWR),
  );
  const [stdout = -1, stderr = -1] = pipes;
  try {
    const { tools } = deps;
    if (tools === undefined) return await startUnguarded(command, deps, stdout, stderr);
    const guardDeps = { ...deps, tools };
    try {
      return await startGuarded(command, guardDeps, stdout, stderr);
    } catch (reason) {
      if (!(reason instanceof OwnMountsError)) throw reason;
      rmSync(layout.end(command.folder), { force: true });
      const plain = { ...command, ownMounts: undefined };
      const started = await startGuarded(plain, guardDeps, stdout, stderr);
      return { ...started, mountProblem: reason.message };
    }
  } finally {
    for (const fd of pipes) closeSync(fd);
  }
}

/**
 * Starts the process under a guard. No `await` separates the spawn of the guard from its record, so
 * that a supervisor which ends in between cannot leave a guard without a record.
 */
async function startGuarded(
  { request, context, folder, cgroup, file, ownMounts }: LaunchCommand,
  { clock, acceptedAtMs, tools }: ProcessDeps & { readonly tools: ShellTools },
  stdout: number,
  stderr: number,
): Promise<StartedProcess> {
  const scriptFile = layout.script(folder, 'main');
  const endFile = layout.end(folder);
  const command = [...request.command, ...request.args];
  const steps = { command, context, joinFile: cgroup?.joinFile, leadsSession: true, ownMounts };
  writeFileSync(scriptFile, buildLaunchScript(steps, tools), { mode: 0o600 });
  const { shell } = tools;
  requireStartLease(request.lease, clock.now() - acceptedAtMs);
  const started = startGuard({
    shell,
    workingDir: context.workingDir,
    env: splitEnvironment(context).secret,
    endFile,
    scriptFile,
    stdout,
    stderr,
  });
  const { child } = started;
  if (started.pid === undefined) throw await waitForSpawnError(child, request.command[0] ?? file);
  const ends = new EndNotifier();
  child.on('exit', (code, signal) => {
    if (signal === null) ends.notify((listener) => listener.onEnded(fromShellStatus(code ?? 0)));
    else ends.notify((listener) => listener.onGuardLost());
  });
  child.on('error', () => undefined); // only a failed signal; `exit` follows
  const guard = { pid: started.pid, startToken: started.startToken };
  try {
    writeRecord(folder, {
      format: 1,
      phase: 'starting',
      guard,
      ...(cgroup === undefined ? {} : { cgroup: cgroup.folder }),
    });
    const pid = await started.mainPid;
    rmSync(scriptFile, { force: true });
    const startToken = readStartToken(pid) ?? '';
    const main = new MainProcess({ pid, startToken, guard, cgroup, endFile, adopted: false });
    return {
      main,
      startedAtMs: clock.wallTime(),
      ...(ownMounts === undefined ? {} : { mountNamespace: readMountNamespace(pid) }),
      onEnd: (listener) => ends.setListener(listener),
    };
  } catch (reason) {
    signalGroup(guard.pid, 'SIGKILL');
    cgroup?.kill();
    // The process may have left the group of its guard, so it is also killed by its own id.
    const pid = await started.mainPid.catch(() => undefined);
    if (pid !== undefined) killGroupOrProcess(pid);
    throw reason;
  }
}

/** Starts a process without guard and lease, as a child of the supervisor. */
async function startUnguarded(
  { request, context, folder, file }: LaunchCommand,
  { clock }: ProcessDeps,
  stdout: number,
  stderr: number,
): Promise<StartedProcess> {
  const [argv0 = file, ...ownArgs] = request.command;
  const child = spawn(file, [...ownArgs, ...request.args], {
    argv0,
    cwd: context.workingDir,
    env: context.env,
    detached: true,
    stdio: ['ignore', stdout, stderr],
  });
  const { pid } = child;
  if (pid === undefined) throw await waitForSpawnError(child, argv0);
  const ends = new EndNotifier();
  child.on('exit', (code, signal) =>
    ends.notify((listener) => listener.onEnded(toProcessEnd(code, signal))),
  );
  child.on('error', () => undefined); // only a failed signal; `exit` follows
  const parts = { pid, startToken: readStartToken(pid) ?? '', guard: undefined, cgroup: undefined };
  const main = new MainProcess({ ...parts, endFile: layout.end(folder), adopted: false });
  return { main, startedAtMs: clock.wallTime(), onEnd: (listener) => ends.setListener(listener) };
}

/** Keeps the end of a process until a listener is set. */
class EndNotifier {
  private listener: ProcessEndListener | undefined;
  private pending: ((listener: ProcessEndListener) => void) | undefined;

  notify(call: (listener: ProcessEndListener) => void): void {
    if (this.listener === undefined) this.pending = call;
    else call(this.listener);
  }

  setListener(listener: ProcessEndListener): void {
    this.listener = listener;
    const { pending } = this;
    if (pending !== undefined) setImmediate(() => pending(listener));
  }
}

/** Returns the error that Node.js emits after a spawn without a process id. */
async function waitForSpawnError(child: ReturnType<typeof spawn>, name: string): Promise<Error> {
  return toSpawnError(await new Promise<Error>((resolve) => child.once('error', resolve)), name);
}

/** Kills a process group, or the process alone when it leads no group. */
function killGroupOrProcess(pid: number): void {
  if (!signalGroup(pid, 'SIGKILL')) killProcess(pid);
}
