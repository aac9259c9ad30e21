import { watch, type FSWatcher } from 'node:fs';
import type { StopSignal } from '@cloudless/base';

/**
 * Wakes a follower when files of a directory have changed, when the log is complete, or when the
 * follower is cancelled.
 */
export class DirectoryChanges {
  private readonly watcher: FSWatcher | undefined;
  private changed = true;
  private finished = false;
  private failure: { readonly reason: unknown } | undefined;
  private wake: (() => void) | undefined;
  private readonly onChange = (): void => this.update(() => (this.changed = true));
  private readonly onAbort = (): void => this.update(() => undefined);

  constructor(
    directory: string,
    private readonly signal: StopSignal,
  ) {
    signal.addEventListener('abort', this.onAbort, { once: true });
    try {
      this.watcher = watch(directory, { persistent: false }, this.onChange);
      this.watcher.on('error', this.onChange);
    } catch {
      this.watcher = undefined; // removed with its container: no change follows
      this.finished = true;
    }
  }

  /**
   * Marks the log as complete when `end` resolves. When `end` rejects, the follower fails with its
   * reason.
   */
  finishAfter(end: Promise<void>): void {
    end.then(
      () => this.update(() => (this.finished = true)),
      (reason: unknown) => this.update(() => (this.failure = { reason })),
    );
  }

  /** Call before a read. Returns whether another read may find more lines. */
  beginRead(): boolean {
    this.changed = false;
    return !this.finished;
  }

  /** Call after a read. Waits for the next change; false when the follower was cancelled. */
  async waitForChange(): Promise<boolean> {
    while (!this.changed && !this.finished && !this.signal.aborted && this.failure === undefined) {
      await new Promise<void>((resolve) => (this.wake = resolve));
    }
    if (this.signal.aborted) return false;
    if (this.failure !== undefined) throw this.failure.reason;
    return true;
  }

  close(): void {
    this.watcher?.close();
    this.signal.removeEventListener('abort', this.onAbort);
  }

  private update(change: () => void): void {
    change();
    this.wake?.();
    this.wake = undefined;
  }
}
