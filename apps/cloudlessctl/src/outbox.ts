/**
 * An asynchronous queue between one writer and one reader. The writer can wait until an item was
 * read.
 */
export class Outbox<Item> {
  private readonly items: { readonly item: Item; readonly taken: () => void }[] = [];
  private over = false;
  private wake: (() => void) | undefined;

  /** Appends an item. Resolves when the item was read or the queue was closed. */
  put(item: Item): Promise<void> {
    if (this.over) return Promise.resolve();
    return new Promise((resolve) => {
      this.items.push({ item, taken: resolve });
      this.wake?.();
    });
  }

  /** Ends the queue: remaining items can still be read. */
  end(): void {
    this.over = true;
    this.wake?.();
  }

  /** Closes the queue and drops the remaining items. */
  close(): void {
    this.end();
    for (const { taken } of this.items.splice(0)) taken();
  }

  /** Yields all items until the queue ends; can be read once. */
  async *read(): AsyncGenerator<Item> {
    for (;;) {
      const next = this.items.shift();
      if (next !== undefined) {
        next.taken();
        yield next.item;
      } else if (this.over) return;
      else await new Promise<void>((resolve) => (this.wake = resolve));
    }
  }
}
