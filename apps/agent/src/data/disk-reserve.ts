import { randomBytes } from 'node:crypto';
import { link, open, readdir, rename, rm, stat, statfs } from 'node:fs/promises';
import { join } from 'node:path';
import {
  CloudlessError,
  errorCodeOf,
  errorFields,
  silentLog,
  type Clock,
  type Log,
} from '@cloudless/base';
import { SerialQueue } from '@cloudless/agent-core';
import { makeDirectory, systemClock } from '@cloudless/app-kit';

/** Folder of the reserve in the data directory. */
export const RESERVE_FOLDER = 'reserve';
/** Number and size of the files of the reserve: 1 MiB together. */
const FILE_COUNT = 8;
const FILE_NAMES: readonly string[] = Array.from({ length: FILE_COUNT }, (_, index) => `${index}`);
const FILE_BYTES = 128 * 1024;
/** The reserve takes no space while less than this is free: others need the last space more. */
const FREE_BYTES_TO_REFILL = 4 * FILE_COUNT * FILE_BYTES;
/**
 * First and longest delay, milliseconds, after an attempt to fill the reserve that failed although
 * the file system has space, for example under a quota. Doubles with each failed attempt.
 */
const FIRST_RETRY_MS = 1_000;
const MAX_RETRY_MS = 60_000;
/** Unit of `stat.blocks`, whatever the file system. */
const BYTES_PER_BLOCK = 512;

/** Returns true when a failure means that no space, no inode or no quota is left. */
export function isNoSpace(reason: unknown): boolean {
  return ['ENOSPC', 'EDQUOT'].includes(errorCodeOf(reason) ?? '');
}

export interface DiskReserveOptions {
  readonly log?: Log;
  readonly clock?: Clock;
  /** Returns the free space of the file system. Default: as the operating system says. */
  readonly readFreeBytes?: () => Promise<number>;
  /** Writes and flushes a file. Default: {@link writeFlushed}. */
  readonly writeFile?: typeof writeFlushed;
}

/**
 * Space that is kept for the writes that stop a replica on a full disk: files that hold their blocks
 * already. A writer takes a whole file as its draft and overwrites the file in place, so that a
 * process that uses up all free space cannot take the reserve from the writer. A file whose name is
 * being replaced goes back to the reserve.
 */
export class DiskReserve {
  private readonly folder: string;
  private isComplete = false;
  /** Number of times that files left the reserve. */
  private removals = 0;
  private refilling: Promise<void> | undefined;
  private readonly tasks = new SerialQueue();
  private hasWarned = false;
  private failedAttempts = 0;
  private nextAttemptAtMs = Number.NEGATIVE_INFINITY;
  private readonly log: Log;
  private readonly clock: Clock;
  private readonly readFreeBytes: () => Promise<number>;
  private readonly writeFile: typeof writeFlushed;

  /** @param directory - Data directory of the agent, which exists. */
  constructor(directory: string, options: DiskReserveOptions = {}) {
    this.folder = join(directory, RESERVE_FOLDER);
    this.log = options.log ?? silentLog;
    this.clock = options.clock ?? systemClock;
    this.writeFile = options.writeFile ?? writeFlushed;
    this.readFreeBytes =
      options.readFreeBytes ??
      (async () => {
        const { bavail, bsize } = await statfs(directory);
        return bavail * bsize;
      });
  }

  /**
   * Gives a part of the reserve back when almost nothing is free: the supervisor of the processes
   * needs some space to start. Never rejects.
   */
  async makeRoomToStart(): Promise<void> {
    try {
      const [largest] = (await this.listFiles()).sort((a, b) => b.bytes - a.bytes);
      if (largest === undefined || (await this.readFreeBytes()) >= FILE_BYTES) return;
      this.noteRemoval();
      await rm(join(this.folder, largest.name), { force: true });
    } catch (reason) {
      this.log.warn('disk reserve not used', errorFields(reason));
    }
  }

  /**
   * Makes the missing files of the reserve, if much more space than that is free. Does nothing while
   * the reserve is complete, and for a while after a failed attempt. Never rejects.
   */
  async refill(): Promise<void> {
    if (this.isComplete || this.clock.now() < this.nextAttemptAtMs) return;
    this.refilling ??= this.createMissing().finally(() => (this.refilling = undefined));
    await this.refilling;
  }

  private async createMissing(): Promise<void> {
    const { removals } = this;
    try {
      await makeDirectory(this.folder, 0o700);
      for (const name of FILE_NAMES) {
        if ((await this.measure(name)) >= FILE_BYTES) continue;
        if ((await this.readFreeBytes()) < FREE_BYTES_TO_REFILL) return;
        await this.createFile(name);
      }
      // A file that left meanwhile may be one that was measured before.
      this.isComplete = removals === this.removals;
      this.failedAttempts = 0;
    } catch (reason) {
      const delayMs = Math.min(MAX_RETRY_MS, FIRST_RETRY_MS * 2 ** this.failedAttempts);
      this.failedAttempts += 1;
      this.nextAttemptAtMs = this.clock.now() + delayMs;
      if (this.hasWarned || isNoSpace(reason)) return;
      this.hasWarned = true;
      this.log.warn('disk reserve not made', errorFields(reason));
    }
  }

  /**
   * Moves a file of the reserve to `path`, to be overwritten in place. The caller renames or removes
   * the file.
   * @returns The name for {@link DiskReserve.returnReplaced}.
   * @throws kind `exhausted` when no file of the reserve holds so many bytes.
   */
  async take(path: string, bytes: number): Promise<string> {
    const smallestFirst = (await this.listFiles())
      .filter((file) => file.bytes >= bytes)
      .sort((a, b) => a.bytes - b.bytes);
    for (const { name } of smallestFirst) {
      this.noteRemoval();
      try {
        await rename(join(this.folder, name), path);
        return name;
      } catch (reason) {
        // Another writer has taken the file meanwhile.
        if (errorCodeOf(reason) !== 'ENOENT') throw reason;
      }
    }
    throw new CloudlessError('exhausted', `the reserve has no file of ${bytes} bytes`);
  }

  /**
   * Keeps a file that is about to be replaced: call it right before the rename onto `path`. Never
   * rejects.
   */
  async returnReplaced(path: string, name: string): Promise<void> {
    // Without a file to replace, or without hard links, the reserve is smaller until it is refilled.
    await link(path, join(this.folder, name)).catch(() => undefined);
  }

  /** Runs tasks that use the reserve one after the other, in the order of the calls. */
  runAlone<Result>(task: () => Promise<Result>): Promise<Result> {
    return this.tasks.run(task);
  }

  /**
   * Overwrites a file that {@link DiskReserve.returnReplaced} has put into the reserve, after the
   * rename. A file that cannot be overwritten leaves the reserve. Never rejects. Call this method in
   * a task of {@link DiskReserve.runAlone}.
   */
  async erase(name: string): Promise<void> {
    const path = join(this.folder, name);
    try {
      const { size, nlink } = await stat(path);
      if (nlink === 1) await this.writeFile(path, randomBytes(size), 'r+');
    } catch {
      await rm(path, { force: true }).catch(() => undefined);
    }
  }

  /**
   * Removes a file with a secret, and keeps its space when a file of the reserve is missing. The
   * caller flushes the folder of the file.
   */
  removeSecret(path: string): Promise<void> {
    return this.runAlone(async () => {
      const present = (await this.listFiles()).map(({ name }) => name);
      const missing = FILE_NAMES.find((name) => !present.includes(name));
      try {
        if (missing === undefined) return await rm(path, { force: true });
        await rename(path, join(this.folder, missing));
        await this.erase(missing);
      } catch {
        await rm(path, { force: true }); // there is no reserve, or no such file
      }
    });
  }

  /** Gives all files of the reserve back to the file system. */
  async release(): Promise<void> {
    this.noteRemoval();
    await rm(this.folder, { recursive: true, force: true });
  }

  private noteRemoval(): void {
    this.isComplete = false;
    this.removals += 1;
  }

  /**
   * Returns the allocated bytes of a file of the reserve. 0 for a missing file, and for a file that
   * has another name too: `returnReplaced` was called and the rename has not happened.
   */
  private async measure(name: string): Promise<number> {
    try {
      const { blocks, nlink } = await stat(join(this.folder, name));
      return nlink === 1 ? blocks * BYTES_PER_BLOCK : 0;
    } catch (reason) {
      if (errorCodeOf(reason) === 'ENOENT') return 0;
      throw reason;
    }
  }

  private async listFiles(): Promise<{ readonly name: string; readonly bytes: number }[]> {
    try {
      const names = (await readdir(this.folder)).filter((name) => /^\d+$/.test(name));
      return await Promise.all(
        names.map(async (name) => ({ name, bytes: await this.measure(name) })),
      );
    } catch (reason) {
      if (errorCodeOf(reason) === 'ENOENT') return [];
      throw reason;
    }
  }

  /** Makes a file of the reserve; a file that was not completed has another name. */
  private async createFile(name: string): Promise<void> {
    const draft = join(this.folder, `${name}.draft`);
    try {
      // Random bytes, because a file system may store zeros without any block.
      await this.writeFile(draft, randomBytes(FILE_BYTES), 'w');
      await rename(draft, join(this.folder, name));
    } catch (reason) {
      await rm(draft, { force: true });
      throw reason;
    }
  }
}

/** Writes a whole file and flushes it. `r+`: overwrites in place, and cuts the rest off. */
export async function writeFlushed(
  path: string,
  content: Uint8Array,
  flags: 'w' | 'r+',
): Promise<void> {
  const file = await open(path, flags, 0o600);
  try {
    await file.writeFile(content);
    await file.truncate(content.length);
    await file.sync();
  } finally {
    await file.close();
  }
}
