import type { Clock, Timer } from '@cloudless/base';
import { EXEC_GRACE_MS, type LogStream, type TerminalSize } from '@cloudless/runtime';
import { signalGroup } from '@cloudless/app-kit/background';
import { killProcesses } from '../../system/process-reference.js';
import { findRelatives, readProcesses } from '../../system/process-tree.js';
import type { LaunchContext } from '../process/launch-context.js';
import type { DependentProcess } from '../container/managed-container.js';
import type { ContainerJoin } from './command-start.js';

/** A command, and what receives its output and its end. */
export interface CommandOptions {
  readonly clock: Clock;
  /** Unique id of the command; it names the pipes of the command and marks its processes. */
  readonly execId: string;
  /** The program and its arguments. */
  readonly command: readonly string[];
  /** Environment, including the variables of the command, and working directory. */
  readonly context: LaunchContext;
  /** How the command joins its container; undefined when there is nothing to join. */
  readonly join?: ContainerJoin | undefined;
  /** Called with each chunk of output. The chunk is valid only during the call. */
  readonly onOutput: (stream: LogStream, chunk: Uint8Array) => void;
  /** Called when the command accepts input again after `writeInput` returned false. */
  readonly onInputDrained: () => void;
  /** Called when the command has ended and `onOutput` has received all its output. */
  readonly onEnd: (exitCode: number) => void;
}

/** One output stream of a command. */
export interface CommandOutput {
  pause(): void;
  resume(): void;
  readonly isPaused: boolean;
  /** Bytes read so far. */
  readonly bytesRead: number;
  /**
   * Reads the available bytes, closes the output even if another process still has the other end
   * open, and reports the end of the output.
   */
  finish(): void;
}

/**
 * Interval of the check that closes an output which processes outside the process group still hold
 * open; the same as for containers.
 */
const OUTPUT_CHECK_MS = 250;
/**
 * After this many checks (10 s) the outputs are closed even if data still arrives, because a
 * process outside the process group may write for ever.
 */
const MAX_OUTPUT_CHECKS = 40;

/**
 * One command in a container, leader of its own process group: the common part of commands with and
 * without a terminal.
 */
export abstract class CommandProcess implements DependentProcess {
  private exitCode: number | undefined;
  private hasFinished = false;
  private isAbandoned = false;
  private openOutputs: number;
  private outputCloseTimer: Timer | undefined;
  private killTimer: Timer | undefined;

  protected constructor(
    private readonly pid: number,
    private readonly outputs: readonly CommandOutput[],
    private readonly options: Pick<CommandOptions, 'clock' | 'onEnd' | 'join'>,
    private readonly deleteLaunchScript: () => void,
  ) {
    this.openOutputs = outputs.length;
  }

  /**
   * Queues input for the command.
   * @returns False when the sender should wait for `onInputDrained` before it sends more.
   */
  abstract writeInput(chunk: Uint8Array): boolean;
  /** Ends the input after all queued input. */
  abstract endInput(): void;
  abstract resize(size: TerminalSize): void;
  /** Closes the input at once, because the caller or the command has gone. */
  protected abstract dropInput(): void;

  pause(): void {
    if (!this.isAbandoned) for (const output of this.outputs) output.pause();
  }

  resume(): void {
    for (const output of this.outputs) output.resume();
  }

  /**
   * Kills the process group of the command and, where there are no cgroups, all its descendants.
   * `onEnd` follows.
   */
  kill(): void {
    if (this.exitCode !== undefined) return;
    const relatives =
      this.options.join?.joinFile === undefined ? findRelatives(this.pid, readProcesses()) : [];
    signalGroup(this.pid, 'SIGKILL');
    killProcesses(relatives);
  }

  /**
   * Ends the command because its caller has gone: SIGHUP and SIGTERM, then SIGKILL after {@link
   * EXEC_GRACE_MS}. Further output is dropped. `onEnd` follows.
   */
  abandon(): void {
    if (this.isAbandoned || this.hasFinished) return;
    this.isAbandoned = true;
    this.dropInput();
    this.resume();
    if (this.exitCode !== undefined) return;
    signalGroup(this.pid, 'SIGHUP');
    signalGroup(this.pid, 'SIGTERM');
    this.killTimer = this.options.clock.setTimer(EXEC_GRACE_MS, () => this.kill());
  }

  /** False after {@link abandon}: the output is not read. */
  protected get hasReader(): boolean {
    return !this.isAbandoned;
  }

  /** Call it when the main process of the command has ended. */
  protected onExited(exitCode: number): void {
    this.exitCode = exitCode;
    this.deleteLaunchScript();
    this.killTimer?.cancel();
    signalGroup(this.pid, 'SIGKILL'); // children that remain in the group
    this.dropInput();
    if (this.openOutputs === 0) this.finish();
    else this.scheduleOutputClose();
  }

  /** Call it once for each output, when the output has ended. */
  protected onOutputEnded(): void {
    this.openOutputs -= 1;
    if (this.openOutputs === 0 && this.exitCode !== undefined) this.finish();
  }

  /**
   * Closes the outputs that stay open after the command has ended. An output that waits for a slow
   * caller stays open, and so does one that still delivers data, because a terminal delivers
   * earlier output in small parts. An output that another process only holds open is closed.
   */
  private scheduleOutputClose(before = this.bytesRead, check = 1): void {
    this.outputCloseTimer = this.options.clock.setTimer(OUTPUT_CHECK_MS, () => {
      const now = this.bytesRead;
      if (this.outputs.some((output) => output.isPaused)) this.scheduleOutputClose(now);
      else if (now > before && check < MAX_OUTPUT_CHECKS) this.scheduleOutputClose(now, check + 1);
      else this.outputs.forEach((output) => output.finish());
    });
  }

  private get bytesRead(): number {
    return this.outputs.reduce((sum, output) => sum + output.bytesRead, 0);
  }

  private finish(): void {
    if (this.hasFinished || this.exitCode === undefined) return;
    this.hasFinished = true;
    this.outputCloseTimer?.cancel();
    this.options.onEnd(this.exitCode);
  }
}
