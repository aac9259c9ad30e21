import type { ContainerSignal } from '@cloudless/runtime';
import { isAlive, signalGroup } from '@cloudless/app-kit/background';
import type { Cgroup } from '../../system/cgroups.js';
import { killProcesses, type ProcessReference } from '../../system/process-reference.js';
import { findRelatives, readProcesses, type TreeProcess } from '../../system/process-tree.js';
import { readProcessEnd, UNKNOWN_END, type ProcessEnd } from './process-end.js';

/** A started main process, and what observes and bounds it. */
export interface MainProcessOptions extends ProcessReference {
  /**
   * Parent of the process: writes its exit status to `endFile`, then ends. Undefined where
   * processes have no guard.
   */
  readonly guard: ProcessReference | undefined;
  /** Contains the process and all its descendants; undefined where there are no cgroups. */
  readonly cgroup: Cgroup | undefined;
  /** Path of the file for the exit status. */
  readonly endFile: string;
  /**
   * True when an earlier supervisor started the process. Node.js then does not report the end of the
   * process, so the supervisor polls for it.
   */
  readonly adopted: boolean;
}

/**
 * A guard that has not written the exit status this long after the end of its child is considered
 * stuck.
 */
const GUARD_TIMEOUT_MS = 2_000;

/**
 * The main process of a running container, leader of its own session, and the processes that it
 * started.
 */
export class MainProcess implements ProcessReference {
  readonly pid: number;
  readonly startToken: string;
  readonly guard: ProcessReference | undefined;
  readonly cgroup: Cgroup | undefined;
  private readonly endFile: string;
  private isPolled: boolean;
  /** Descendants of the process when it got SIGTERM or SIGKILL; only where there is no cgroup. */
  private relatives: readonly TreeProcess[] = [];
  private deadSinceMs: number | undefined;

  constructor(options: MainProcessOptions) {
    this.pid = options.pid;
    this.startToken = options.startToken;
    this.guard = options.guard;
    this.cgroup = options.cgroup;
    this.endFile = options.endFile;
    this.isPolled = options.adopted;
  }

  /** True when the supervisor must poll for the end of the process. */
  get mustPoll(): boolean {
    return this.isPolled;
  }

  get isAlive(): boolean {
    return isAlive(this.pid, this.startToken);
  }

  /**
   * Sends a signal to this process alone.
   * @returns False when the process has ended.
   */
  sendSignal(signal: ContainerSignal): boolean {
    if (!this.isAlive) return false;
    try {
      process.kill(this.pid, signal);
      return true;
    } catch {
      return false; // ended meanwhile
    }
  }

  /** Sends SIGTERM to the process group. */
  terminate(): void {
    this.recordRelatives();
    this.signal('SIGTERM');
  }

  /** Kills the process and everything that it started. */
  kill(): void {
    this.recordRelatives();
    this.signal('SIGKILL');
    this.cgroup?.kill();
    killProcesses(this.relatives);
  }

  /** Kills the rest of the process group. Call it when the process has ended. */
  killGroup(): void {
    // No other process can have this id while a member of the group runs.
    signalGroup(this.pid, 'SIGKILL');
    this.cgroup?.kill();
    killProcesses(this.relatives);
  }

  /**
   * Kills processes that left the process group. Call it when the process has ended.
   * @param processes - All processes of the machine, read after the end.
   */
  killRelatives(processes: readonly TreeProcess[]): void {
    if (this.cgroup !== undefined) return this.cgroup.kill();
    // A later process with this id may lead a session of the same number.
    const isReused = processes.some(({ pid }) => pid === this.pid);
    const descendants = this.relatives.flatMap(({ pid, startToken }) =>
      isAlive(pid, startToken) ? findRelatives(pid, processes) : [],
    );
    killProcesses([
      ...this.relatives,
      ...descendants,
      ...(isReused ? [] : findRelatives(this.pid, processes)),
    ]);
  }

  /**
   * Switches to polling. Call it when the guard was killed.
   * @returns The end of the process if it has ended.
   */
  onGuardEnded(): ProcessEnd | undefined {
    this.isPolled = true;
    return this.isAlive ? undefined : (readProcessEnd(this.endFile) ?? UNKNOWN_END);
  }

  /**
   * Polls for the end of the process.
   * @param nowMs - Current time; use the same clock for each call.
   * @returns Undefined while the process runs, and until its guard has written the exit status.
   */
  findEnd(nowMs: number): ProcessEnd | undefined {
    if (this.isAlive) return undefined;
    const { guard } = this;
    this.deadSinceMs ??= nowMs;
    if (guard !== undefined && isAlive(guard.pid, guard.startToken)) {
      if (nowMs - this.deadSinceMs < GUARD_TIMEOUT_MS) return undefined;
      signalGroup(guard.pid, 'SIGKILL');
    }
    return readProcessEnd(this.endFile) ?? UNKNOWN_END;
  }

  private signal(signal: 'SIGTERM' | 'SIGKILL'): void {
    if (signalGroup(this.pid, signal) || !this.isAlive) return;
    try {
      process.kill(this.pid, signal); // the process does not lead its group yet
    } catch {
      // ended meanwhile
    }
  }

  private recordRelatives(): void {
    if (this.cgroup === undefined)
      this.relatives = [...this.relatives, ...findRelatives(this.pid, readProcesses())];
  }
}
