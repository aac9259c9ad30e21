/** Runs tasks one after the other, in the order they were given. */
export class SerialQueue {
  private last: Promise<unknown> = Promise.resolve();

  /** Resolves or rejects as the task does. A failed task does not keep the next from running. */
  run<Result>(task: () => Promise<Result>): Promise<Result> {
    const result = this.last.then(task);
    this.last = result.catch(() => undefined);
    return result;
  }

  /** Resolves when everything given so far has ended. */
  async idle(): Promise<void> {
    await this.last;
  }
}
