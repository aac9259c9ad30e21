/** Runs asynchronous tasks one after the other, in the order of the calls. */
export class SerialQueue {
  private last: Promise<unknown> = Promise.resolve();

  /** Queues a task. Settles as the task does; a failed task does not stop the next task. */
  run<Result>(task: () => Promise<Result>): Promise<Result> {
    const result = this.last.then(task);
    this.last = result.catch(() => undefined);
    return result;
  }

  /** Resolves when all tasks queued so far have ended. */
  async idle(): Promise<void> {
    await this.last;
  }
}
