import { readdirSync, rmSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import type { Clock } from '@cloudless/base';
import { makeDirectorySync } from '@cloudless/system';
import { readProcess, type HostProcess } from '../system/host-processes.js';
import { endCommand } from './exec-processes.js';

const NAME = /^(\d+)-(\d+)$/;

/**
 * Which commands run for us, as files: runtimes let a command run on when its caller was killed, so
 * the next one of us ends what the last one left.
 */
export class CommandRecords {
  constructor(
    private readonly directory: string,
    private readonly clock: Clock,
  ) {
    makeDirectorySync(directory, 0o700);
  }

  /** From here on the command is not forgotten. */
  add(command: HostProcess): void {
    writeFileSync(this.fileOf(command), '');
  }

  /** It has ended. */
  delete(command: HostProcess): void {
    rmSync(this.fileOf(command), { force: true });
  }

  /** Ends a command whose caller has gone. */
  async end(command: HostProcess): Promise<void> {
    await endCommand(command, this.clock);
    this.delete(command);
  }

  /** Ends what an agent that was killed has left. @returns How many there were. */
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

  private fileOf({ pid, startToken }: HostProcess): string {
    return path.join(this.directory, `${pid}-${startToken}`);
  }
}
