/**
 * An asynchronous queue between one writer and one reader. The writer can wait until an item was
 * read.
 */
export class RequestQueue<Item> {
  private readonly pending: { readonly item: Item; readonly taken: () => void }[] = [];
  private ended = false;
  private wakeReader: (() => void) | undefined;

  /** Appends an item. Resolves when the item was read or the queue was closed. */
  put(item: Item): Promise<void> {
    if (this.ended) return Promise.resolve();
    return new Promise((resolve) => {
      this.pending.push({ item, taken: resolve });
      this.wakeReader?.();
    });
  }

  /** Ends the queue: remaining items can still be read. */
  end(): void {
    this.ended = true;
    this.wakeReader?.();
  }

  /** Closes the queue and drops the remaining items. */
  close(): void {
    this.end();
    for (const { taken } of this.pending.splice(0)) taken();
  }

  /** Yields all items until the queue ends; can be read once. */
  async *read(): AsyncGenerator<Item> {
    for (;;) {
      const next = this.pending.shift();
      if (next !== undefined) {
        next.taken();
        yield next.item;
      } else if (this.ended) return;
      else await new Promise<void>((resolve) => (this.wakeReader = resolve));
    }
  }
}
