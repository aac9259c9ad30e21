import type { Cgroup } from '../system/cgroups.js';
import { isAlive, signalGroup } from '../system/process-identity.js';
import { killAll, readProcesses, relativesOf, type TreeProcess } from '../system/process-tree.js';
import { readEnd, UNSEEN, type ProcessEnd } from './process-end.js';

/** A process that cannot be mistaken for a later one with the same id. */
export interface ProcessReference {
  readonly pid: number;
  readonly startToken: string;
}

export interface MainProcessParts extends ProcessReference {
  /**
   * Parent of the process: writes its exit status to `endFile`, then ends. Undefined where
   * processes have no guard.
   */
  readonly guard: ProcessReference | undefined;
  /** Holds the process and all that it started; undefined where there are no cgroups. */
  readonly cgroup: Cgroup | undefined;
  readonly endFile: string;
  /** The process is not a child of this supervisor, which therefore polls for its end. */
  readonly adopted: boolean;
}

/** After this time a guard whose child has ended is taken to be unable to write the exit status. */
const GUARD_TIMEOUT_MS = 2_000;

/** The main process of a running container, leader of its own session, and all that it started. */
export class MainProcess implements ProcessReference {
  readonly pid: number;
  readonly startToken: string;
  readonly guard: ProcessReference | undefined;
  readonly cgroup: Cgroup | undefined;
  private readonly endFile: string;
  private isAdopted: boolean;
  /** Where there is no cgroup: what the process had started when it was asked to end. */
  private relatives: readonly TreeProcess[] = [];
  private deadSinceMs: number | undefined;

  constructor(parts: MainProcessParts) {
    this.pid = parts.pid;
    this.startToken = parts.startToken;
    this.guard = parts.guard;
    this.cgroup = parts.cgroup;
    this.endFile = parts.endFile;
    this.isAdopted = parts.adopted;
  }

  /** Whether the supervisor must poll for the end of the process. */
  get adopted(): boolean {
    return this.isAdopted;
  }

  get isAlive(): boolean {
    return isAlive(this.pid, this.startToken);
  }

  /** Sends SIGTERM to the process group. */
  terminate(): void {
    this.noteRelatives();
    this.signal('SIGTERM');
  }

  /** Kills the process and everything that it started. */
  kill(): void {
    this.noteRelatives();
    this.signal('SIGKILL');
    this.cgroup?.kill();
    killAll(this.relatives);
  }

  /** To be called when the process has ended: kills the rest of its process group. */
  killGroup(): void {
    // no other process can have this number while a member of the group lives
    signalGroup(this.pid, 'SIGKILL');
    this.cgroup?.kill();
    killAll(this.relatives);
  }

  /**
   * To be called when the process has ended: kills processes that left its process group.
   * @param processes - Those of the machine, as seen after the end.
   */
  killRelatives(processes: readonly TreeProcess[]): void {
    if (this.cgroup !== undefined) return this.cgroup.kill();
    // then another process may lead a session of this number
    const isReused = processes.some(({ pid }) => pid === this.pid);
    const known = this.relatives.flatMap(({ pid, startToken }) =>
      isAlive(pid, startToken) ? relativesOf(pid, processes) : [],
    );
    killAll([...this.relatives, ...known, ...(isReused ? [] : relativesOf(this.pid, processes))]);
  }

  /**
   * To be called when the guard was killed: from now on the supervisor polls.
   * @returns The end, if the process has ended.
   */
  guardEnded(): ProcessEnd | undefined {
    this.isAdopted = true;
    return this.isAlive ? undefined : (readEnd(this.endFile) ?? UNSEEN);
  }

  /**
   * Polls for the end of the process.
   * @param nowMs - Of the same clock each time.
   * @returns Undefined while it runs, and for the moment that its guard takes to write the exit
   *   status down.
   */
  findEnd(nowMs: number): ProcessEnd | undefined {
    if (this.isAlive) return undefined;
    const { guard } = this;
    this.deadSinceMs ??= nowMs;
    if (guard !== undefined && isAlive(guard.pid, guard.startToken)) {
      if (nowMs - this.deadSinceMs < GUARD_TIMEOUT_MS) return undefined;
      signalGroup(guard.pid, 'SIGKILL');
    }
    return readEnd(this.endFile) ?? UNSEEN;
  }

  private signal(signal: 'SIGTERM' | 'SIGKILL'): void {
    if (signalGroup(this.pid, signal) || !this.isAlive) return;
    try {
      process.kill(this.pid, signal); // it does not lead its group yet
    } catch {
      // ended meanwhile
    }
  }

  private noteRelatives(): void {
    if (this.cgroup === undefined)
      this.relatives = [...this.relatives, ...relativesOf(this.pid, readProcesses())];
  }
}
