import { execFile } from 'node:child_process';
import { readdirSync, renameSync } from 'node:fs';
import path from 'node:path';
import { CloudlessError } from '@cloudless/base';
import { makeDirectorySync } from '@cloudless/app-kit';

/**
 * Number of named pipes that one call of `mkfifo` creates. Node.js cannot create named pipes, and a
 * helper program takes milliseconds.
 */
const BATCH_SIZE = 64;
/** A new batch is created when fewer pipes than this are left. */
const MIN_READY = 24;
/** Directories in which `mkfifo` is searched, whatever the PATH of the supervisor. */
const HELPER_PATH = '/usr/bin:/bin:/usr/sbin:/sbin:/usr/local/bin';

/**
 * Named pipes that are created in advance, so that the start of a container does not wait for them.
 */
export class FifoPool {
  private readonly ready: string[];
  private filling: Promise<void> | undefined;

  /**
   * @param directory - Created when it does not exist. Pipes of an earlier supervisor in it are
   *   used.
   * @param createName - Must return a file name that it has not returned before.
   */
  constructor(
    private readonly directory: string,
    private readonly createName: () => string,
  ) {
    makeDirectorySync(directory, 0o700);
    this.ready = readdirSync(directory).map((name) => path.join(directory, name));
  }

  /**
   * Creates the first batch unless enough pipes are left.
   * @throws kind `exhausted` when no pipe can be created.
   */
  async prepare(): Promise<void> {
    if (this.ready.length < MIN_READY) await this.fill();
  }

  /**
   * Moves a pipe of the pool to the path `file`, on the same file system.
   * @throws kind `exhausted` when no pipe can be created.
   */
  async acquire(file: string): Promise<void> {
    while (this.ready.length === 0) await this.fill();
    const next = this.ready.pop();
    if (next !== undefined) renameSync(next, file);
    // A failure is ignored here: a later caller that finds no pipe tries again.
    if (this.ready.length < MIN_READY) void this.fill().catch(() => undefined);
  }

  private fill(): Promise<void> {
    this.filling ??= this.createBatch().finally(() => (this.filling = undefined));
    return this.filling;
  }

  private createBatch(): Promise<void> {
    const files = Array.from({ length: BATCH_SIZE }, () =>
      path.join(this.directory, this.createName()),
    );
    return new Promise((resolve, reject) => {
      execFile('mkfifo', ['-m', '600', ...files], { env: { PATH: HELPER_PATH } }, (cause) => {
        if (cause !== null)
          return reject(
            new CloudlessError('exhausted', 'no named pipes could be created', { cause }),
          );
        this.ready.push(...files);
        resolve();
      });
    });
  }
}
