import { linkSync, readdirSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { CloudlessError, sleep, type Clock } from '@cloudless/base';
import { makeDirectorySync } from '@cloudless/app-kit';
import { readProcess } from '../system/host-processes.js';

export interface FileLockOptions {
  /**
   * Absolute path of the directory that represents the lock, created when it does not exist. No
   * other program may keep files there.
   */
  readonly directory: string;
  readonly clock: Clock;
  /** Longest wait for another holder. Default 30 s. */
  readonly waitMs?: number;
  /** For tests: identity of this process, and a check whether a holder still runs. */
  readonly self?: string;
  readonly isAlive?: (holder: string) => boolean;
}

const MAX_WAIT_MS = 30_000;
const POLL_MS = 20;
const FREE = 'free';
const DRAFT = 'draft-';
let drafts = 0;

/**
 * A lock between processes of one machine. The lock of a process that was killed is void.
 *
 * The lock is a directory of numbered files. The highest number contains the holder, or `free`. To
 * acquire a free or void lock, a process creates the next number, which the file system allows one
 * process only. It removes lower numbers afterwards, so the highest number always exists: a process
 * that created its number too late finds a higher one and gives up.
 */
export class FileLock {
  private readonly self: string;
  private readonly isAlive: (holder: string) => boolean;

  constructor(private readonly options: FileLockOptions) {
    this.self = options.self ?? describeThisProcess();
    this.isAlive = options.isAlive ?? isRunning;
  }

  /**
   * Runs work while this process holds the lock.
   * @throws kind `unavailable` when another process holds it for too long.
   */
  async run<Result>(work: () => Promise<Result>): Promise<Result> {
    const number = await this.acquire();
    try {
      return await work();
    } finally {
      this.placeFile(FREE, (draft) => renameSync(draft, this.getFile(number)));
    }
  }

  private async acquire(): Promise<number> {
    const { directory, clock, waitMs = MAX_WAIT_MS } = this.options;
    makeDirectorySync(directory, 0o700);
    const deadline = clock.now() + waitMs;
    for (;;) {
      const top = this.listNumbers().at(-1) ?? 0;
      const holder = top === 0 ? FREE : this.read(top);
      if (
        holder !== undefined &&
        (holder === FREE || !this.isAlive(holder)) &&
        this.tryAcquire(top + 1)
      )
        return top + 1;
      if (clock.now() >= deadline) {
        throw new CloudlessError(
          'unavailable',
          `the lock ${directory} is held by another process: ${holder ?? 'unknown'}`,
        );
      }
      await sleep(clock, POLL_MS);
    }
  }

  private tryAcquire(number: number): boolean {
    if (!this.placeFile(this.self, (draft) => linkSync(draft, this.getFile(number)))) return false;
    const numbers = this.listNumbers();
    const isHighest = numbers.at(-1) === number;
    for (const each of isHighest ? numbers.filter((other) => other < number) : [number])
      rmSync(this.getFile(each), { force: true });
    if (isHighest) this.removeDrafts();
    return isHighest;
  }

  /**
   * Creates or replaces a file atomically.
   * @returns False when another process was first.
   */
  private placeFile(content: string, put: (draft: string) => void): boolean {
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

  /** Removes the drafts of processes that were killed meanwhile. */
  private removeDrafts(): void {
    for (const name of readdirSync(this.options.directory)) {
      const holder = /^draft-(.*)-\d+$/.exec(name)?.[1];
      if (holder !== undefined && !this.isAlive(holder))
        rmSync(path.join(this.options.directory, name), { force: true });
    }
  }

  /** Lists the numbers, ascending; so few that one system call reads them. */
  private listNumbers(): readonly number[] {
    return readdirSync(this.options.directory)
      .filter((name) => /^[1-9]\d*$/.test(name))
      .map(Number)
      .sort((a, b) => a - b);
  }

  /** Reads the holder; undefined when a higher number has replaced the file meanwhile. */
  private read(number: number): string | undefined {
    try {
      return readFileSync(this.getFile(number), 'utf8');
    } catch (reason) {
      if ((reason as NodeJS.ErrnoException).code === 'ENOENT') return undefined;
      throw reason;
    }
  }

  private getFile(number: number): string {
    return path.join(this.options.directory, String(number));
  }
}

/** Returns a text that identifies this process uniquely across boots of the machine. */
function describeThisProcess(): string {
  return `${process.pid}-${readProcess(process.pid)?.startToken ?? '0'}-${readBootId()}`;
}

function isRunning(holder: string): boolean {
  const [pid, startToken, ...boot] = holder.split('-');
  return boot.join('-') === readBootId() && readProcess(Number(pid))?.startToken === startToken;
}

function readBootId(): string {
  return readFileSync('/proc/sys/kernel/random/boot_id', 'utf8').trim();
}
