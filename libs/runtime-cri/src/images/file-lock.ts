import { linkSync, readdirSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { CloudlessError, sleep, type Clock } from '@cloudless/base';
import { makeDirectorySync } from '@cloudless/system';
import { readProcess } from '../system/host-processes.js';

/** Needs of a {@link FileLock}. */
export interface FileLockOptions {
  /**
   * Absolute path of the folder that is the lock; made when missing. Nobody else may keep anything
   * there.
   */
  readonly directory: string;
  readonly clock: Clock;
  /** How long somebody else is waited for. Default 30 s. */
  readonly waitMs?: number;
  /** For tests: who takes it, and whether such a one still lives. */
  readonly self?: string;
  readonly isAlive?: (holder: string) => boolean;
}

const WAIT_MS = 30_000;
const LOOK_MS = 20;
const FREE = 'free';
const DRAFT = 'draft-';
let drafts = 0;

/**
 * A lock between processes of one machine, which a process that is killed lets go of by having
 * ended.
 *
 * It is a folder of numbered files. The highest one says who holds the lock, or that nobody does.
 * To take it from nobody, or from one that has ended, is to make the next number, which the file
 * system lets one process do. Only then lower numbers are removed, so the highest one is always
 * there: who made a number too late finds a higher one, and steps back.
 */
export class FileLock {
  private readonly self: string;
  private readonly isAlive: (holder: string) => boolean;

  constructor(private readonly options: FileLockOptions) {
    this.self = options.self ?? thisProcess();
    this.isAlive = options.isAlive ?? isRunning;
  }

  /**
   * Does something while nobody else does. @throws kind `unavailable` when somebody else holds it
   * for too long.
   */
  async run<Result>(work: () => Promise<Result>): Promise<Result> {
    const number = await this.take();
    try {
      return await work();
    } finally {
      this.place(FREE, (draft) => renameSync(draft, this.file(number)));
    }
  }

  private async take(): Promise<number> {
    const { directory, clock, waitMs = WAIT_MS } = this.options;
    makeDirectorySync(directory, 0o700);
    const deadline = clock.now() + waitMs;
    for (;;) {
      const top = this.numbers().at(-1) ?? 0;
      const holder = top === 0 ? FREE : this.read(top);
      if (
        holder !== undefined &&
        (holder === FREE || !this.isAlive(holder)) &&
        this.tryTake(top + 1)
      )
        return top + 1;
      if (clock.now() >= deadline) {
        throw new CloudlessError(
          'unavailable',
          `the lock ${directory} is held by another process: ${holder ?? 'unknown'}`,
        );
      }
      await sleep(clock, LOOK_MS);
    }
  }

  private tryTake(number: number): boolean {
    if (!this.place(this.self, (draft) => linkSync(draft, this.file(number)))) return false;
    const numbers = this.numbers();
    const isHighest = numbers.at(-1) === number;
    for (const each of isHighest ? numbers.filter((other) => other < number) : [number])
      rmSync(this.file(each), { force: true });
    if (isHighest) this.removeDrafts();
    return isHighest;
  }

  /**
   * Files appear with their content, or not at all. @returns False when somebody else was first.
   */
  private place(content: string, put: (draft: string) => void): boolean {
    const draft = path.join(this.options.directory, `${DRAFT}${this.self}-${(drafts += 1)}`);
    writeFileSync(draft, content, { mode: 0o600 });
    try {
      put(draft);
      return true;
    } catch (reason) {
      if ((reason as NodeJS.ErrnoException).code === 'EEXIST') return false;
      throw reason;
    } finally {
      rmSync(draft, { force: true });
    }
  }

  /** Of those that were killed meanwhile. */
  private removeDrafts(): void {
    for (const name of readdirSync(this.options.directory)) {
      const holder = /^draft-(.*)-\d+$/.exec(name)?.[1];
      if (holder !== undefined && !this.isAlive(holder))
        rmSync(path.join(this.options.directory, name), { force: true });
    }
  }

  /** So few that the system reads them at once. */
  private numbers(): readonly number[] {
    return readdirSync(this.options.directory)
      .filter((name) => /^[1-9]\d*$/.test(name))
      .map(Number)
      .sort((a, b) => a - b);
  }

  /** Undefined when a higher one came meanwhile. */
  private read(number: number): string | undefined {
    try {
      return readFileSync(this.file(number), 'utf8');
    } catch (reason) {
      if ((reason as NodeJS.ErrnoException).code === 'ENOENT') return undefined;
      throw reason;
    }
  }

  private file(number: number): string {
    return path.join(this.options.directory, String(number));
  }
}

/** Tells this process from every other one, of this boot of the machine and of others. */
function thisProcess(): string {
  return `${process.pid}-${readProcess(process.pid)?.startToken ?? '0'}-${bootId()}`;
}

function isRunning(holder: string): boolean {
  const [pid, startToken, ...boot] = holder.split('-');
  return boot.join('-') === bootId() && readProcess(Number(pid))?.startToken === startToken;
}

function bootId(): string {
  return readFileSync('/proc/sys/kernel/random/boot_id', 'utf8').trim();
}
