import { watch, type FSWatcher } from 'node:fs';
import type { StopSignal } from '@cloudless/base';

/**
 * Wakes a follower of a log when files in the directory of the log have changed, when the log is
 * complete, or when the follower is cancelled. Call `close` at the end.
 */
export class DirectoryChanges {
  private readonly watcher: FSWatcher | undefined;
  private changed = true;
  /** True when files may have been created or removed since the last `beginRead`. */
  private filesChanged = true;
  private finished = false;
  private failure: { readonly reason: unknown } | undefined;
  private wake: (() => void) | undefined;
  private readonly onAbort = (): void => this.update(() => undefined);

  /**
   * Begins to watch the directory.
   * @param signal - Cancels the follower.
   */
  constructor(
    directory: string,
    private readonly signal: StopSignal,
  ) {
    signal.addEventListener('abort', this.onAbort, { once: true });
    try {
      this.watcher = watch(directory, { persistent: false }, (kind) =>
        this.onChange(kind !== 'change'),
      );
      this.watcher.on('error', () => this.onChange(true));
    } catch {
      this.watcher = undefined; // the directory was removed with its container: no change follows
      this.finished = true;
    }
  }

  /**
   * Marks the log as complete when `end` resolves. When `end` rejects, {@link waitForChange} throws
   * the same error.
   */
  finishAfter(end: Promise<void>): void {
    end.then(
      () => this.update(() => (this.finished = true)),
      (reason: unknown) => this.update(() => (this.failure = { reason })),
    );
  }

  /**
   * Call it before each read.
   * @returns `mayHaveMore`: false when the log is complete, so that this read is the last.
   *   `mayHaveNewFiles`: false when no file was created or removed since the last read.
   */
  beginRead(): { readonly mayHaveMore: boolean; readonly mayHaveNewFiles: boolean } {
    const mayHaveNewFiles = this.filesChanged || this.finished;
    this.changed = false;
    this.filesChanged = false;
    return { mayHaveMore: !this.finished, mayHaveNewFiles };
  }

  /**
   * Call it after a read. Waits for the next change since `beginRead`.
   * @returns False when the follower was cancelled.
   * @throws The error with which `end` was rejected.
   */
  async waitForChange(): Promise<boolean> {
    while (!this.changed && !this.finished && !this.signal.aborted && this.failure === undefined) {
      await new Promise<void>((resolve) => (this.wake = resolve));
    }
    if (this.signal.aborted) return false;
    if (this.failure !== undefined) throw this.failure.reason;
    return true;
  }

  /** Stops watching the directory. */
  close(): void {
    this.watcher?.close();
    this.signal.removeEventListener('abort', this.onAbort);
  }

  private onChange(filesChanged: boolean): void {
    this.update(() => {
      this.changed = true;
      this.filesChanged ||= filesChanged;
    });
  }

  private update(change: () => void): void {
    change();
    this.wake?.();
    this.wake = undefined;
  }
}
