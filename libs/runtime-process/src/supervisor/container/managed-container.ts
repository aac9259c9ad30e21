import { rmSync } from 'node:fs';
import {
  definedFields,
  CloudlessError,
  errorFields,
  type Clock,
  type Log,
  type Timer,
} from '@cloudless/base';
import {
  LEASE_ENDED_REASON,
  type ContainerLease,
  type ContainerSignal,
  type ContainerStatus,
} from '@cloudless/runtime';
import type { TreeProcess } from '../../system/process-tree.js';
import type { ContainerJoin } from '../command/command-start.js';
import { PersistentLease } from '../lease/persistent-lease.js';
import type { ShellTools } from '../process/launch-script.js';
import type { GuardedLease } from '../lease/lease-guard.js';
import {
  readMountNamespace,
  toRecordedLaunch,
  type LaunchContext,
} from '../process/launch-context.js';
import type { MountTools } from '../resolver/own-mounts.js';
import type { ResolverHolder } from '../resolver/resolver-keeper.js';
import type { MainProcess } from '../process/main-process.js';
import type { ProcessEnd } from '../process/process-end.js';
import type { ContainerOutput } from './container-output.js';
import { writeRecord, type RecordedLease } from './container-record.js';
import { layout } from './container-paths.js';

/** What a container needs from its supervisor. */
export interface ManagedContainerDeps {
  /** Directory of the container. */
  readonly directory: string;
  readonly clock: Clock;
  readonly log: Log;
  readonly bootId: string;
  readonly output: ContainerOutput;
  /** Called once, after the exit record is written or could not be written. */
  readonly onExit: (container: ManagedContainer) => void;
}

/** A process that must not outlive its container, such as a command. */
export interface DependentProcess {
  kill(): void;
}

/**
 * Milliseconds for which the pipes stay open after the end of the main process, while another
 * process still holds them.
 */
const OUTPUT_CLOSE_MS = 250;

/** Delays after which a process that is polled is checked when one of its pipes has closed. */
const PIPE_END_CHECKS_MS = [0, 1, 3, 10, 30];

/** One container: its running main process, or the record of its end. */
export class ManagedContainer {
  /** Killed when the container ends. */
  readonly dependents = new Set<DependentProcess>();
  private current: ContainerStatus;
  private stopWaiters: ((status: ContainerStatus) => void)[] = [];
  private pendingKill: { readonly at: number; readonly timer: Timer } | undefined;
  private outputTimer: Timer | undefined;
  private readonly lease: PersistentLease;

  /**
   * @param main - Undefined for a container that has ended.
   * @param context - Undefined for a container that has ended.
   */
  constructor(
    status: ContainerStatus,
    readonly main: MainProcess | undefined,
    private context: LaunchContext | undefined,
    private readonly deps: ManagedContainerDeps,
  ) {
    this.current = status;
    this.lease = new PersistentLease({
      clock: deps.clock,
      onEnd: (graceMs) => void this.stop(graceMs),
      persist: () => this.writeRunningRecord(),
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

  /** Resolves when all output is in the log files. */
  get drained(): Promise<void> {
    return this.deps.output.drained;
  }

  /**
   * Returns the environment and working directory for commands in the container.
   * @throws kind `precondition` when the container has ended.
   */
  requireLaunchContext(): LaunchContext {
    if (!this.isRunning || this.context === undefined) {
      throw new CloudlessError(
        'precondition',
        `container ${this.current.containerId} is not running`,
      );
    }
    return this.context;
  }

  /**
   * Describes how a command joins the cgroup and the mounts of the container; undefined when there
   * is neither.
   */
  createCommandJoin(
    execId: string,
    tools: ShellTools | undefined,
    mountTools: MountTools | undefined,
  ): ContainerJoin | undefined {
    const joinFile = this.main?.cgroup?.joinFile;
    const holder = this.resolverHolder;
    // A main process that has moved on to other mounts keeps its commands among those of the machine.
    const mountEntry =
      mountTools === undefined ||
      holder === undefined ||
      readMountNamespace(holder.pid) !== holder.mountNamespace
        ? undefined
        : ([mountTools.nsenter, `--mount=/proc/${holder.pid}/ns/mnt`, '--'] as const);
    if (tools === undefined || (joinFile === undefined && mountEntry === undefined))
      return undefined;
    const scriptFile = layout.script(this.deps.directory, `exec-${execId}`);
    return { tools, joinFile, mountEntry, scriptFile };
  }

  /** The main process with its own resolv.conf; undefined when it uses that of the machine. */
  get resolverHolder(): ResolverHolder | undefined {
    const { main, context } = this;
    const mountNamespace = context?.mountNamespace;
    if (!this.isRunning || main === undefined || mountNamespace === undefined) return undefined;
    const { containerId } = this.current;
    const directory = layout.resolver(this.deps.directory);
    return { containerId, pid: main.pid, mountNamespace, directory };
  }

  /** Renews the lease; undefined removes the lease. Does nothing when the container has ended. */
  renew(lease: ContainerLease | undefined): void {
    if (this.isRunning) this.lease.renew(lease);
  }

  /** Lease for the lease guard; undefined without a lease, and when the container has ended. */
  get guardedLease(): GuardedLease | undefined {
    const { main } = this;
    const lease = this.isRunning ? this.lease.current : undefined;
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

  /** Resumes the lease that an earlier supervisor recorded. */
  resumeLease(lease: RecordedLease): void {
    this.lease.resume(lease);
  }

  /** Writes the record of the running container. */
  writeRunningRecord(): void {
    const { main, context, lease } = this;
    if (main === undefined || context === undefined || !this.isRunning) return;
    writeRecord(this.deps.directory, {
      format: 1,
      phase: 'running',
      status: this.current,
      pid: main.pid,
      startToken: main.startToken,
      bootId: this.deps.bootId,
      ...definedFields({ guard: main.guard }),
      ...(main.cgroup === undefined ? {} : { cgroup: main.cgroup.folder }),
      launch: toRecordedLaunch(context),
      ...definedFields({ lease: lease.recorded }),
    });
  }

  /**
   * Sends SIGTERM, and SIGKILL after `graceMs`; only SIGKILL when `graceMs` is 0. A further call
   * can bring SIGKILL forward but not put it off.
   * @returns The status after the end of the main process.
   */
  stop(graceMs: number): Promise<ContainerStatus> {
    if (!this.isRunning) return Promise.resolve(this.current);
    const ended = new Promise<ContainerStatus>((resolve) => this.stopWaiters.push(resolve));
    const at = this.deps.clock.now() + Math.max(0, graceMs);
    const isFirstStop = this.pendingKill === undefined;
    if (this.pendingKill === undefined || at < this.pendingKill.at) {
      this.pendingKill?.timer.cancel();
      this.pendingKill = {
        at,
        timer: this.deps.clock.setTimer(graceMs, () => this.signal('SIGKILL')),
      };
    }
    if (graceMs <= 0) this.signal('SIGKILL');
    else if (isFirstStop) this.signal('SIGTERM');
    return ended;
  }

  /**
   * Sends a signal to the main process alone.
   * @throws kind `precondition` when the process has ended.
   */
  signalMain(signal: ContainerSignal): void {
    this.checkEnded();
    if (this.main !== undefined && this.isRunning && this.main.sendSignal(signal)) return;
    throw new CloudlessError(
      'precondition',
      `container ${this.current.containerId} is not running`,
    );
  }

  /**
   * Checks for the end of the main process, and handles it. Does nothing for a child of this
   * supervisor without a guard, because Node.js reports the end of such a child.
   */
  checkEnded(): void {
    const { main } = this;
    if (main === undefined || !this.isRunning || (!main.mustPoll && main.guard === undefined))
      return;
    const end = main.findEnd(this.deps.clock.now());
    if (end !== undefined) this.onEnded(end);
  }

  /**
   * Call it when the guard was killed. The exit code is then unknown, unless the guard has written
   * it before.
   */
  onGuardEnded(): void {
    if (!this.isRunning) return;
    const end = this.main?.onGuardEnded();
    if (end !== undefined) this.onEnded(end);
  }

  /**
   * Kills processes that left the process group of an ended container.
   * @param processes - All processes of the machine, read after the end.
   */
  killRelatives(processes: readonly TreeProcess[]): void {
    if (!this.isRunning) this.main?.killRelatives(processes);
  }

  /**
   * Handles the end of the main process: kills the rest of its group, writes the record and
   * notifies the waiting callers.
   * @param isEndedByLease - True when the lease had expired before the end.
   */
  onEnded(
    { exitCode, reason, finishedAtMs = this.deps.clock.wallTime() }: ProcessEnd,
    isEndedByLease = this.lease.hasEnded,
  ): void {
    if (!this.isRunning) return;
    this.pendingKill?.timer.cancel();
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
    this.current = isEndedByLease
      ? { ...ended, reason: LEASE_ENDED_REASON, leaseEnded: true }
      : ended;
    this.context = undefined;
    this.writeExitRecord();
    for (const dependent of this.dependents) dependent.kill();
    this.deps.onExit(this);
    for (const resolve of this.stopWaiters.splice(0)) resolve(this.current);
    if (this.deps.output.hasEnded) this.deps.output.finish();
    else
      this.outputTimer = this.deps.clock.setTimer(OUTPUT_CLOSE_MS, () => this.deps.output.finish());
  }

  /**
   * Writes the exit record. On a full disk the end is reported all the same; a later supervisor
   * then observes that the process is gone, but not its exit code.
   */
  private writeExitRecord(): void {
    try {
      writeRecord(this.deps.directory, { format: 1, phase: 'exited', status: this.current });
    } catch (reason) {
      this.deps.log.error('exit record of a container not written', {
        containerId: this.current.containerId,
        ...errorFields(reason),
      });
    }
  }

  /**
   * Handles the end of a pipe: the last writer has closed it, so the process has ended or is about
   * to end.
   */
  onPipeEnded(): void {
    if (this.isRunning && this.main?.mustPoll === true) {
      for (const delayMs of PIPE_END_CHECKS_MS)
        this.deps.clock.setTimer(delayMs, () => this.checkEnded());
    }
    if (this.isRunning || !this.deps.output.hasEnded) return;
    this.outputTimer?.cancel();
    this.deps.output.finish();
  }

  /**
   * Deletes the directory of the container with its logs.
   * @throws kind `precondition` while the container runs.
   */
  remove(): void {
    if (this.isRunning)
      throw new CloudlessError(
        'precondition',
        `container ${this.current.containerId} is running: stop it first`,
      );
    this.outputTimer?.cancel();
    this.deps.output.finish();
    rmSync(this.deps.directory, { recursive: true, force: true });
  }

  /** Closes files, cancels timers and kills the commands; the main process continues. */
  close(): void {
    this.lease.cancel();
    this.pendingKill?.timer.cancel();
    this.outputTimer?.cancel();
    for (const dependent of this.dependents) dependent.kill();
    this.deps.output.close();
  }

  private signal(signal: 'SIGTERM' | 'SIGKILL'): void {
    const { main } = this;
    this.checkEnded();
    if (main === undefined || !this.isRunning) return;
    if (signal === 'SIGTERM') main.terminate();
    else main.kill();
  }
}
