/**
 * An asynchronous queue between one writer and one reader, for the requests of a bidirectional
 * stream. The writer can wait until the reader has read an item.
 */
export class RequestQueue<Item> {
  private readonly pending: { readonly item: Item; readonly onRead: () => void }[] = [];
  private ended = false;
  private wakeReader: (() => void) | undefined;

  /**
   * Appends an item. An item that is put after the end is dropped.
   * @returns Resolves when the reader has read the item or the queue is closed.
   */
  put(item: Item): Promise<void> {
    if (this.ended) return Promise.resolve();
    return new Promise((resolve) => {
      this.pending.push({ item, onRead: resolve });
      this.wakeReader?.();
    });
  }

  /** Ends the queue. The reader still reads the remaining items. */
  end(): void {
    this.ended = true;
    this.wakeReader?.();
  }

  /** Closes the queue and drops the remaining items. */
  close(): void {
    this.end();
    for (const { onRead } of this.pending.splice(0)) onRead();
  }

  /** Yields all items until the queue ends. Must be called only once. */
  async *read(): AsyncGenerator<Item> {
    for (;;) {
      const next = this.pending.shift();
      if (next !== undefined) {
        next.onRead();
        yield next.item;
      } else if (this.ended) return;
      else await new Promise<void>((resolve) => (this.wakeReader = resolve));
    }
  }
}
