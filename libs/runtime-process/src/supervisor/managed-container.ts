import { rmSync } from 'node:fs';
import { CloudlessError, errorFields, type Clock, type Log, type Timer } from '@cloudless/base';
import { LEASE_ENDED_REASON, type ContainerLease, type ContainerStatus } from '@cloudless/runtime';
import type { TreeProcess } from '../system/process-tree.js';
import type { CommandJoin } from './command-start.js';
import { layout } from './container-paths.js';
import { writeRecord, type RecordedLease } from './container-record.js';
import { KeptLease } from './kept-lease.js';
import type { ShellTools } from './launch-script.js';
import type { GuardedLease } from './lease-guard.js';
import type { LaunchContext } from './launch-plan.js';
import type { MainProcess } from './main-process.js';
import type { ContainerOutput } from './output.js';
import type { ProcessEnd } from './process-end.js';

/** What a container needs of its supervisor. */
export interface ManagedContainerDeps {
  readonly directory: string;
  readonly clock: Clock;
  readonly log: Log;
  readonly bootId: string;
  readonly output: ContainerOutput;
  /** Called once, after the record is written, or could not be. */
  readonly onExit: (container: ManagedContainer) => void;
}

/** Something that runs in a container and ends with it. */
export interface Companion {
  kill(): void;
}

/**
 * After the end of the main process its pipes are given this long to empty before they are closed
 * under whoever holds them.
 */
const LINGER_MS = 250;

/**
 * When a pipe of an adopted process ended, the process is looked at again after these milliseconds.
 */
const HINT_LOOKS_MS = [0, 1, 3, 10, 30];

/** One container: a main process, or the record of how it ended. */
export class ManagedContainer {
  readonly companions = new Set<Companion>();
  private current: ContainerStatus;
  private waiting: ((status: ContainerStatus) => void)[] = [];
  private killing: { readonly at: number; readonly timer: Timer } | undefined;
  private lingering: Timer | undefined;
  private readonly lease: KeptLease;

  constructor(
    status: ContainerStatus,
    readonly main: MainProcess | undefined,
    private context: LaunchContext | undefined,
    private readonly deps: ManagedContainerDeps,
  ) {
    this.current = status;
    this.lease = new KeptLease({
      clock: deps.clock,
      onEnd: (graceMs) => void this.stop(graceMs),
      keep: () => this.writeRunning(),
    });
  }

  get status(): ContainerStatus {
    return this.current;
  }

  get isRunning(): boolean {
    return this.current.phase === 'running';
  }

  get ports(): readonly number[] {
    return this.current.endpoints.map(({ port }) => port);
  }

  /** Everything written is in the log. */
  get drained(): Promise<void> {
    return this.deps.output.drained;
  }

  /** Where its commands run. @throws kind `precondition` when it has ended. */
  launchContext(): LaunchContext {
    if (!this.isRunning || this.context === undefined) {
      throw new CloudlessError(
        'precondition',
        `container ${this.current.containerId} is not running`,
      );
    }
    return this.context;
  }

  /** How a command joins the cgroup of the container; undefined where there are no cgroups. */
  joinOf(execId: string, tools: ShellTools | undefined): CommandJoin | undefined {
    const cgroup = this.main?.cgroup;
    if (cgroup === undefined || tools === undefined) return undefined;
    return {
      tools,
      joinFile: cgroup.joinFile,
      scriptFile: layout.script(this.deps.directory, `exec-${execId}`),
    };
  }

  /** Ends by itself unless it is renewed again in time; undefined: it runs without end. */
  renew(lease: ContainerLease | undefined): void {
    if (this.isRunning) this.lease.renew(lease);
  }

  /** The lease for the lease guard; undefined without a lease, and when the container has ended. */
  get guardedLease(): GuardedLease | undefined {
    const { main } = this;
    const lease = this.isRunning ? this.lease.newest : undefined;
    if (lease === undefined || main === undefined) return undefined;
    const { endsAtUptimeSeconds, graceMs } = lease;
    return {
      containerId: this.current.containerId,
      endsAtUptimeSeconds,
      graceMs,
      main: { pid: main.pid, startToken: main.startToken },
      cgroup: main.cgroup?.folder,
    };
  }

  /** Goes on with the lease that an earlier supervisor wrote down. */
  resumeLease(lease: RecordedLease): void {
    this.lease.resume(lease);
  }

  /** Writes down that it runs. */
  writeRunning(): void {
    const { main, context, lease } = this;
    if (main === undefined || context === undefined || !this.isRunning) return;
    writeRecord(this.deps.directory, {
      format: 1,
      phase: 'running',
      status: this.current,
      pid: main.pid,
      startToken: main.startToken,
      bootId: this.deps.bootId,
      ...(main.guard === undefined ? {} : { guard: main.guard }),
      ...(main.cgroup === undefined ? {} : { cgroup: main.cgroup.folder }),
      launch: context,
      ...(lease.recorded === undefined ? {} : { lease: lease.recorded }),
    });
  }

  stop(graceMs: number): Promise<ContainerStatus> {
    if (!this.isRunning) return Promise.resolve(this.current);
    const ended = new Promise<ContainerStatus>((resolve) => this.waiting.push(resolve));
    const at = this.deps.clock.now() + Math.max(0, graceMs);
    const first = this.killing === undefined;
    if (this.killing === undefined || at < this.killing.at) {
      this.killing?.timer.cancel();
      this.killing = { at, timer: this.deps.clock.setTimer(graceMs, () => this.signal('SIGKILL')) };
    }
    if (graceMs <= 0) this.signal('SIGKILL');
    else if (first) this.signal('SIGTERM');
    return ended;
  }

  /** Looks whether the process has ended, unless its end is told in any case. */
  check(): void {
    const { main } = this;
    if (main === undefined || !this.isRunning || (!main.adopted && main.guard === undefined))
      return;
    const end = main.findEnd(this.deps.clock.now());
    if (end !== undefined) this.ended(end);
  }

  /**
   * To be called when the guard was killed: the exit code is lost unless the guard has written it.
   */
  guardEnded(): void {
    if (!this.isRunning) return;
    const end = this.main?.guardEnded();
    if (end !== undefined) this.ended(end);
  }

  /**
   * Kills processes that left the process group of an ended container.
   * @param processes - All of the machine, read since.
   */
  sweep(processes: readonly TreeProcess[]): void {
    if (!this.isRunning) this.main?.killRelatives(processes);
  }

  /** The main process has ended: kills the rest of its group, writes the record, tells. */
  ended(
    { exitCode, reason, finishedAtMs = this.deps.clock.wallTime() }: ProcessEnd,
    byLease = this.lease.hasEnded,
  ): void {
    if (!this.isRunning) return;
    this.killing?.timer.cancel();
    this.lease.cancel();
    this.main?.killGroup();
    const { containerId, labels, startedAtMs, endpoints } = this.current;
    const ended = {
      containerId,
      labels,
      phase: 'exited',
      startedAtMs,
      finishedAtMs,
      exitCode,
      reason,
      endpoints,
    } as const;
    this.current = byLease ? { ...ended, reason: LEASE_ENDED_REASON, leaseEnded: true } : ended;
    this.context = undefined;
    this.writeEnd();
    for (const companion of this.companions) companion.kill();
    this.deps.onExit(this);
    for (const resolve of this.waiting.splice(0)) resolve(this.current);
    if (this.deps.output.hasEnded) this.deps.output.finish();
    else this.lingering = this.deps.clock.setTimer(LINGER_MS, () => this.deps.output.finish());
  }

  /**
   * On a full disk the end is told all the same; a later supervisor sees by itself that the process
   * is gone, but not its exit code.
   */
  private writeEnd(): void {
    try {
      writeRecord(this.deps.directory, { format: 1, phase: 'exited', status: this.current });
    } catch (reason) {
      this.deps.log.error('end of a container not written down', {
        containerId: this.current.containerId,
        ...errorFields(reason),
      });
    }
  }

  /** A pipe has no writer any more: the process has ended or is about to. */
  pipeEnded(): void {
    if (this.isRunning && this.main?.adopted === true) {
      for (const delayMs of HINT_LOOKS_MS) this.deps.clock.setTimer(delayMs, () => this.check());
    }
    if (this.isRunning || !this.deps.output.hasEnded) return;
    this.lingering?.cancel();
    this.deps.output.finish();
  }

  /** Deletes logs and files. @throws kind `precondition` while it runs. */
  remove(): void {
    if (this.isRunning)
      throw new CloudlessError(
        'precondition',
        `container ${this.current.containerId} is running: stop it first`,
      );
    this.lingering?.cancel();
    this.deps.output.finish();
    rmSync(this.deps.directory, { recursive: true, force: true });
  }

  /** Lets go of files and timers; the process goes on. */
  close(): void {
    this.lease.cancel();
    this.killing?.timer.cancel();
    this.lingering?.cancel();
    for (const companion of this.companions) companion.kill();
    this.deps.output.close();
  }

  private signal(signal: 'SIGTERM' | 'SIGKILL'): void {
    const { main } = this;
    this.check();
    if (main === undefined || !this.isRunning) return;
    if (signal === 'SIGTERM') main.terminate();
    else main.kill();
  }
}
