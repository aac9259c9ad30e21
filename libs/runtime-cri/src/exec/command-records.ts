import { readdirSync, rmSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import type { Clock } from '@cloudless/base';
import { makeDirectorySync } from '@cloudless/app-kit';
import { readProcess, type HostProcess } from '../system/host-processes.js';
import { endCommand } from './exec-processes.js';

const NAME = /^(\d+)-(\d+)$/;

/**
 * Records of the running commands, as files. Container runtimes let a command continue when its
 * caller was killed, so the next agent ends the commands of the last agent.
 */
export class CommandRecords {
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

  /** Ends a command whose caller has left, and removes its record. */
  async end(command: HostProcess): Promise<void> {
    await endCommand(command, this.clock);
    this.delete(command);
  }

  /**
   * Ends the commands that a killed agent has left.
   * @returns The number of these commands.
   */
  async endAll(): Promise<number> {
    const left: HostProcess[] = [];
    for (const name of readdirSync(this.directory)) {
      const [, pid = '', startToken] = NAME.exec(name) ?? [];
      const found = readProcess(Number(pid));
      if (found !== undefined && found.startToken === startToken) left.push(found);
      else rmSync(path.join(this.directory, name), { force: true });
    }
    await Promise.all(left.map((command) => this.end(command)));
    return left.length;
  }

  private getFile({ pid, startToken }: HostProcess): string {
    return path.join(this.directory, `${pid}-${startToken}`);
  }
}
