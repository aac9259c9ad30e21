import { linkSync, readdirSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { CloudlessError, errorCodeOf, sleep, type Clock } from '@cloudless/base';
import { makeDirectorySync } from '@cloudless/app-kit';
import { readBootId } from '@cloudless/app-kit/background';
import { isRunning, readProcess } from '../system/host-processes.js';

/** Options of a {@link FileLock}. */
export interface FileLockOptions {
  /**
   * Absolute path of the directory that represents the lock, created when it does not exist. No
   * other program may keep files there.
   */
  readonly directory: string;
  readonly clock: Clock;
  /** Longest wait for another holder, in milliseconds. Default 30 s. */
  readonly waitMs?: number;
  /** For tests: identity of this process. Default: process id, start time and boot id. */
  readonly self?: string;
  /** For tests: returns true when the process with this identity still runs. */
  readonly isAlive?: (holder: string) => boolean;
}

/** Default of `waitMs`: work under the lock takes seconds at most. */
const MAX_WAIT_MS = 30_000;
/** Interval of the attempts to acquire the lock. */
const POLL_MS = 20;
/** Content of the file of a free lock. */
const FREE = 'free';
/** Prefix of the names of files that are not complete yet. */
const DRAFT = 'draft-';
/** Number of drafts of this process, which makes their names unique. */
let drafts = 0;

/**
 * A lock between processes of one machine. A lock whose holder was killed can be acquired again.
 *
 * The lock is a directory of numbered files. The file with the highest number contains the identity
 * of the holder, or `free`. When the lock is free or its holder has ended, a process acquires the
 * lock by creating the file with the next number, which the file system allows only one process.
 * The process removes lower numbers afterwards, so the highest number always exists. A process that
 * creates its number too late finds a higher number and gives up its own.
 */
export class FileLock {
  private readonly self: string;
  private readonly isAlive: (holder: string) => boolean;

  constructor(private readonly options: FileLockOptions) {
    this.self = options.self ?? describeThisProcess();
    this.isAlive = options.isAlive ?? isHolderRunning;
  }

  /**
   * Runs work while this process holds the lock, and releases the lock when the work succeeds or
   * fails.
   * @throws kind `unavailable` when another process holds the lock for longer than `waitMs`.
   */
  async run<Result>(work: () => Promise<Result>): Promise<Result> {
    const number = await this.acquire();
    try {
      return await work();
    } finally {
      this.placeFile(FREE, (draft) => renameSync(draft, this.getFile(number)));
    }
  }

  /** Waits for the lock and returns the number of its file. */
  private async acquire(): Promise<number> {
    const { directory, clock, waitMs = MAX_WAIT_MS } = this.options;
    makeDirectorySync(directory, 0o700);
    const deadline = clock.now() + waitMs;
    for (;;) {
      const highest = this.listNumbers().at(-1) ?? 0;
      const holder = highest === 0 ? FREE : this.read(highest);
      if (
        holder !== undefined &&
        (holder === FREE || !this.isAlive(holder)) &&
        this.tryAcquire(highest + 1)
      )
        return highest + 1;
      if (clock.now() >= deadline) {
        throw new CloudlessError(
          'unavailable',
          `the lock ${directory} is held by another process: ${holder ?? 'unknown'}`,
        );
      }
      await sleep(clock, POLL_MS);
    }
  }

  /** Creates the file with this number. Returns false when another process was first. */
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
   * Creates or replaces a file atomically: writes a draft, which `put` then links or renames.
   * @returns False when the file exists already.
   */
  private placeFile(content: string, put: (draft: string) => void): boolean {
    const draft = path.join(this.options.directory, `${DRAFT}${this.self}-${(drafts += 1)}`);
    writeFileSync(draft, content, { mode: 0o600 });
    try {
      put(draft);
      return true;
    } catch (reason) {
      if (errorCodeOf(reason) === 'EEXIST') return false;
      throw reason;
    } finally {
      rmSync(draft, { force: true });
    }
  }

  /** Removes the drafts of processes that were killed. */
  private removeDrafts(): void {
    for (const name of readdirSync(this.options.directory)) {
      const holder = /^draft-(.*)-\d+$/.exec(name)?.[1];
      if (holder !== undefined && !this.isAlive(holder))
        rmSync(path.join(this.options.directory, name), { force: true });
    }
  }

  /** Lists the numbers in ascending order. */
  private listNumbers(): readonly number[] {
    return readdirSync(this.options.directory)
      .filter((name) => /^[1-9]\d*$/.test(name))
      .map(Number)
      .sort((a, b) => a - b);
  }

  /**
   * Reads the holder; undefined when the file was removed meanwhile in favour of a higher number.
   */
  private read(number: number): string | undefined {
    try {
      return readFileSync(this.getFile(number), 'utf8');
    } catch (reason) {
      if (errorCodeOf(reason) === 'ENOENT') return undefined;
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

/** Returns true while the process runs that {@link describeThisProcess} has described. */
function isHolderRunning(holder: string): boolean {
  const [pid, startToken = '', ...boot] = holder.split('-');
  return boot.join('-') === readBootId() && isRunning({ pid: Number(pid), startToken });
}
