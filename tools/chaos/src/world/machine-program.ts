import type { Machine, RunningProgram } from '@cloudless/e2e';

/** A program on a machine of its own, which may be started again. */
export abstract class MachineProgram {
  private newest: RunningProgram | undefined;

  constructor(readonly machine: Machine) {}

  get name(): string {
    return this.machine.name;
  }

  get isRunning(): boolean {
    return this.newest?.hasEnded === false;
  }

  /** Output of the newest process. */
  get lines(): readonly string[] {
    return this.newest?.lines ?? [];
  }

  /** The newest process. */
  get program(): RunningProgram {
    if (this.newest === undefined) throw new Error(`${this.name} was never started`);
    return this.newest;
  }

  /** Sends a signal. Resolves at the end of the process; at once for SIGSTOP and SIGCONT. */
  async kill(signal: NodeJS.Signals): Promise<void> {
    if (!this.isRunning) return;
    if (signal === 'SIGSTOP' || signal === 'SIGCONT') process.kill(this.program.pid, signal);
    else await this.program.kill(signal);
  }

  /** Starts a process of the program by a command of a shell. */
  protected run(command: string): void {
    this.newest = this.machine.start(command);
  }
}
