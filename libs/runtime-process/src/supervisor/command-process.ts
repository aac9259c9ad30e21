import type { Clock, Timer } from '@cloudless/base';
import { EXEC_GRACE_MS, type LogStream, type TerminalSize } from '@cloudless/runtime';
import { signalGroup } from '../system/process-identity.js';
import { killAll, readProcesses, relativesOf } from '../system/process-tree.js';
import type { CommandJoin } from './command-start.js';
import type { LaunchContext } from './launch-plan.js';
import type { Companion } from './managed-container.js';

/** What a command is run with and whom it tells. */
export interface CommandOptions {
  readonly clock: Clock;
  /** New for each command; names its pipes and marks its processes. */
  readonly execId: string;
  readonly command: readonly string[];
  /** Environment and directory, with the command's own variables. */
  readonly context: LaunchContext;
  /** Undefined where containers have no cgroups. */
  readonly join?: CommandJoin | undefined;
  readonly onOutput: (stream: LogStream, chunk: Uint8Array) => void;
  /** The input can take more again. */
  readonly onInputDrained: () => void;
  /** The command has ended and all it wrote was given to `onOutput`. */
  readonly onEnd: (exitCode: number) => void;
}

/** Where output of a command is read. */
export interface CommandOutput {
  pause(): void;
  resume(): void;
  readonly isPaused: boolean;
  /** Bytes read so far. */
  readonly bytesRead: number;
  /**
   * Reads what is there now, then closes, whoever may still hold the other end; the end is told.
   */
  finish(): void;
}

/** As for containers: how long output may stay open under processes that left the group. */
const LINGER_MS = 250;
/** Something that left the group may write for ever. */
const MAX_LINGERS = 40;

/**
 * One command in a container, leader of its own process group: what commands with and without a
 * terminal have in common.
 */
export abstract class CommandProcess implements Companion {
  private exitCode: number | undefined;
  private ended = false;
  private left = false;
  private openOutputs: number;
  private lingering: Timer | undefined;
  private killing: Timer | undefined;

  protected constructor(
    private readonly pid: number,
    private readonly outputs: readonly CommandOutput[],
    private readonly tell: Pick<CommandOptions, 'clock' | 'onEnd' | 'join'>,
    private readonly clearStart: () => void,
  ) {
    this.openOutputs = outputs.length;
  }

  /** False when the sender should wait for `onInputDrained`. */
  abstract writeInput(chunk: Uint8Array): boolean;
  abstract endInput(): void;
  abstract resize(size: TerminalSize): void;
  /** Nobody sends, or nobody reads, any more. */
  protected abstract dropInput(): void;

  pause(): void {
    if (!this.left) for (const output of this.outputs) output.pause();
  }

  resume(): void {
    for (const output of this.outputs) output.resume();
  }

  /** Ends it and its children at once; `onEnd` follows. */
  kill(): void {
    if (this.exitCode !== undefined) return;
    const relatives = this.tell.join === undefined ? relativesOf(this.pid, readProcesses()) : [];
    signalGroup(this.pid, 'SIGKILL');
    killAll(relatives);
  }

  /**
   * The caller has gone: asks it to end, and makes it; what it still writes is dropped. `onEnd`
   * follows.
   */
  leave(): void {
    if (this.left || this.ended) return;
    this.left = true;
    this.dropInput();
    this.resume();
    if (this.exitCode !== undefined) return;
    signalGroup(this.pid, 'SIGHUP');
    signalGroup(this.pid, 'SIGTERM');
    this.killing = this.tell.clock.setTimer(EXEC_GRACE_MS, () => this.kill());
  }

  /** Whether what it writes is wanted. */
  protected get isHeard(): boolean {
    return !this.left;
  }

  protected exited(exitCode: number): void {
    this.exitCode = exitCode;
    this.clearStart();
    this.killing?.cancel();
    signalGroup(this.pid, 'SIGKILL'); // what it left behind
    this.dropInput();
    if (this.openOutputs === 0) this.finish();
    else this.linger();
  }

  protected outputEnded(): void {
    this.openOutputs -= 1;
    if (this.openOutputs === 0 && this.exitCode !== undefined) this.finish();
  }

  /**
   * A reader that waits for a slow caller is not cut off, nor is one that still gets something: a
   * terminal hands on what was written before the end only bit by bit. An output that someone
   * merely holds open is.
   */
  private linger(before = this.bytesRead, turn = 1): void {
    this.lingering = this.tell.clock.setTimer(LINGER_MS, () => {
      const now = this.bytesRead;
      if (this.outputs.some((output) => output.isPaused)) this.linger(now);
      else if (now > before && turn < MAX_LINGERS) this.linger(now, turn + 1);
      else this.outputs.forEach((output) => output.finish());
    });
  }

  private get bytesRead(): number {
    return this.outputs.reduce((sum, output) => sum + output.bytesRead, 0);
  }

  private finish(): void {
    if (this.ended || this.exitCode === undefined) return;
    this.ended = true;
    this.lingering?.cancel();
    this.tell.onEnd(this.exitCode);
  }
}
