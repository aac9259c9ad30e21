/** The open streams of one role, which end together with an error when the role changes. */
export class EndableStreams {
  private readonly enders = new Set<(reason: unknown) => void>();
  private endReason: unknown;

  /** True while a stream is open. */
  get isUsed(): boolean {
    return this.enders.size > 0;
  }

  /** Ends all open streams with `reason`, and every stream that is added later. */
  end(reason: unknown): void {
    this.endReason = reason;
    for (const end of [...this.enders]) end(reason);
  }

  /**
   * Returns the items of a stream, until the stream ends or {@link end} is called.
   * @param open - Opens the stream.
   */
  add<Item>(open: () => AsyncIterable<Item>): AsyncIterable<Item> {
    const source = open();
    return {
      [Symbol.asyncIterator]: () => {
        const items = source[Symbol.asyncIterator]();
        let rejectNext: ((reason: unknown) => void) | undefined;
        let endReason: unknown = this.endReason;
        const stopSource = (): void => void items.return?.().then(undefined, () => undefined);
        const end = (reason: unknown): void => {
          this.enders.delete(end);
          endReason = reason;
          rejectNext?.(reason);
          stopSource();
        };
        const finish = (): void => void this.enders.delete(end);
        if (endReason === undefined) this.enders.add(end);
        return {
          next: () =>
            new Promise((resolve, reject) => {
              if (endReason !== undefined) return reject(endReason);
              rejectNext = reject;
              items.next().then(
                (result) => {
                  if (result.done === true) finish();
                  resolve(result);
                },
                (reason: unknown) => {
                  finish();
                  reject(reason);
                },
              );
            }),
          return: async (value?: unknown) => {
            finish();
            await items.return?.();
            return { done: true, value: value as never };
          },
        };
      },
    };
  }
}
