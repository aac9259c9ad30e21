import { readdirSync, rmSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import type { Clock } from '@cloudless/base';
import { makeDirectorySync } from '@cloudless/app-kit';
import { readProcess, type HostProcess } from '../system/host-processes.js';
import { endCommand } from './exec-processes.js';

/** Name of a record: process id and start token of the command. */
const NAME = /^(\d+)-(\d+)$/;

/**
 * Records of the running commands, one empty file per command. Container runtimes let a command run
 * on when its caller was killed, so the next agent ends the recorded commands of a killed agent.
 */
export class CommandRecords {
  /** @param directory - Absolute path, created when it does not exist. */
  constructor(
    private readonly directory: string,
    private readonly clock: Clock,
  ) {
    makeDirectorySync(directory, 0o700);
  }

  /** Records a running command. */
  add(command: HostProcess): void {
    writeFileSync(this.getFile(command), '');
  }

  /** Removes the record of an ended command. */
  delete(command: HostProcess): void {
    rmSync(this.getFile(command), { force: true });
  }

  /** Ends a recorded command whose caller no longer reads it, and removes the record. */
  async end(command: HostProcess): Promise<void> {
    await endCommand(command, this.clock);
    this.delete(command);
  }

  /**
   * Ends all recorded commands that still run, and removes all records.
   * @returns The number of commands that were still running.
   */
  async endAll(): Promise<number> {
    const running: HostProcess[] = [];
    for (const name of readdirSync(this.directory)) {
      const [, pid = '', startToken] = NAME.exec(name) ?? [];
      const found = readProcess(Number(pid));
      if (found !== undefined && found.startToken === startToken) running.push(found);
      else rmSync(path.join(this.directory, name), { force: true });
    }
    await Promise.all(running.map((command) => this.end(command)));
    return running.length;
  }

  private getFile({ pid, startToken }: HostProcess): string {
    return path.join(this.directory, `${pid}-${startToken}`);
  }
}
